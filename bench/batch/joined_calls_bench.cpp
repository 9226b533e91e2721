// Question  How many calls a second can be joined into batches, where a run takes a given time and costs
//           nothing else?
// Peer      None: what callers without a batch get is a run each, callers / run time at best (`alone`).
// Read as   calls/s, the median of the rounds, for 1 to 256 blocking callers of one row, or for callers that
//           keep --outstanding submissions under way, each sent again by its own answer. A run spins, as the
//           thread does that watches a device. The bar, on 16 cores: 1.6M with 128 callers and runs of 20 us.
// Checked   every answer is the caller's own row, doubled.
// Also      processor time per call, all threads, in the program and in the system; how often a thread slept.
//           With --alone 1 submissions are not joined: what becomes of the rate when many wait?
// Usage     joined_calls_bench [--callers N] [--outstanding N] [--alone 1] [--lanes N] [--looks 0]
//           [--run_us N] [--max_rows N] [--seconds S] [--json FILE] [--trace FILE]
#include <sys/resource.h>

#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "base/thread.h"
#include "base/trace.h"
#include "batch/calls/coalescer.h"
#include "batch/calls/submission_fixture.h"
#include "bench/base/rounds.h"
#include "runtime/test_device_fixture.h"

namespace heddle::bench {
namespace {

using device::View;
using runtime::test::Rows;

struct Setting {
  int lanes = 4;
  bool looks = true;  // as on device "cuda"
  bool alone = false;
  int64_t max_rows = 64;
  size_t outstanding = 0;  // 0: blocking calls
  Duration run_time = std::chrono::microseconds(20);
  Duration measured = std::chrono::milliseconds(300);
};

struct Used {
  double user_s = 0, system_s = 0, sleeps = 0;
};
Used used_so_far() {
  rusage now{};
  getrusage(RUSAGE_SELF, &now);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return {seconds(now.ru_utime), seconds(now.ru_stime), static_cast<double>(now.ru_nvcsw)};
}

class Joined {
 public:
  explicit Joined(const Setting& setting) : setting_(setting) {
    const auto device = std::make_shared<runtime::test::TestDevice>(
        runtime::test::TestOptions{.lanes = setting.lanes, .name = "spinning"});
    device->set_kernel("doubled", [run_time = setting.run_time](const device::Run& run) {
      const TimePoint end = Clock::real().now() + run_time;
      const auto* x = reinterpret_cast<const float*>(runtime::test::at(run.inputs[0]));
      auto* y = reinterpret_cast<float*>(runtime::test::at(run.outputs[0]));
      for (int64_t i = 0; i < 4 * run.inputs[0].extents[0]; ++i) y[i] = 2 * x[i];
      while (Clock::real().now() < end) {
      }
      return Status();
    });
    runtime::Options options;
    options.in_flight = setting.lanes;
    runtime_ = require(runtime::Runtime::make(device, options));
    model_ = require(runtime_->load(runtime::test::graph_named("doubled")));
    batch::CoalescerOptions joins;
    joins.lanes = joins.lanes_alone = setting.lanes;
    joins.more_leaders = std::max(0, processors() - setting.lanes - 1);
    joins.door = false;
    joins.max_rows = setting.max_rows;
    joins.alone = setting.alone;
    joins.look_on = setting.looks ? processors() : 0;
    coalescer_ = std::make_shared<batch::Coalescer>(
        runtime_, model_, require(batch::RowLayout::make(model_->inputs(), model_->outputs(), {}, false)),
        joins);
  }
  ~Joined() { coalescer_->close(); }
  Joined(const Joined&) = delete;
  Joined& operator=(const Joined&) = delete;

  struct Measured {
    double calls_per_s = 0;
    Used a_call;
  };
  Measured measure(int callers) const {
    std::vector<Counts> counts(static_cast<size_t>(callers));
    const Used before = used_so_far();
    const TimePoint begin = Clock::real().now() + setting_.measured / 4;
    const Span measured{begin, begin + setting_.measured};
    run_together(callers, [&](int caller) {
      Counts& mine = counts[static_cast<size_t>(caller)];
      if (setting_.outstanding == 0) return call_again(caller, measured, mine);
      keep_outstanding(caller, measured, mine);
    });
    Counts all;
    for (const Counts& each : counts) all += each;
    if (all.wrong != 0) {
      std::fprintf(stderr, "%llu answers were wrong\n", static_cast<unsigned long long>(all.wrong));
      std::exit(1);
    }
    const Used after = used_so_far();
    const auto made = static_cast<double>(all.made);
    return {static_cast<double>(all.timed) / std::chrono::duration<double>(setting_.measured).count(),
            {(after.user_s - before.user_s) / made, (after.system_s - before.system_s) / made,
             (after.sleeps - before.sleeps) / made}};
  }

  std::string sizes() const {
    const auto stats = coalescer_->stats();
    return text(stats.calls, " calls in ", stats.batches, " runs");
  }

 private:
  struct Span {
    TimePoint begin, end;
  };
  struct alignas(64) Counts {
    uint64_t timed = 0, made = 0, wrong = 0;  // calls within the time measured; all; whose answer was wrong
    void operator+=(const Counts& other) {
      timed += other.timed;
      made += other.made;
      wrong += other.wrong;
    }
    void note(const Result<std::vector<View>>& answer, float wanted, bool is_timed) {
      ++made;
      if (is_timed) ++timed;
      if (!answer.ok() || runtime::test::values_of(answer->front())[3] != wanted) ++wrong;
    }
  };

  void call_again(int caller, const Span& measured, Counts& counts) const {
    Rows x(1, static_cast<float>(caller));
    const View view = x.view();
    for (TimePoint now = Clock::real().now(); now < measured.end; now = Clock::real().now()) {
      const auto y = coalescer_->join({&view, 1}, Deadline::never(), {}, nullptr);
      counts.note(y, 2 * x.values[3], now >= measured.begin);
    }
  }

  // The answers of one caller may come on several threads; one submission's do not overlap.
  void keep_outstanding(int caller, const Span& measured, Counts& counts) const {
    Rows x(1, static_cast<float>(caller));
    struct Sender {
      std::function<void()> send;
      Counts counts;
      Atomic<uint32_t> over{0};
    };
    std::vector<Sender> senders(setting_.outstanding);
    for (Sender& sender : senders) {
      sender.send = [&] {
        const TimePoint now = Clock::real().now();
        batch::Coalescer::Submission call;
        call.absent = batch::submitted(x.view(), [&, now](const Result<std::vector<View>>& answer) {
          sender.counts.note(answer, 2 * x.values[3], now >= measured.begin);
          if (now < measured.end) return sender.send();
          sender.over.store_release(1);  // pairs with the wait below
        });
        if (!coalescer_->submit(std::move(call)).ok()) std::abort();
      };
      sender.send();
    }
    std::this_thread::sleep_until(measured.end);
    for (Sender& sender : senders) {
      while (sender.over.load_acquire() == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
      counts += sender.counts;
    }
  }

  const Setting setting_;
  Ref<runtime::Runtime> runtime_;
  Ref<runtime::Model> model_;
  Ref<batch::Coalescer> coalescer_;
};

int run(int argc, char** argv) {
  std::map<std::string, std::string> asked;
  for (int i = 1; i + 1 < argc; i += 2) asked[argv[i]] = argv[i + 1];
  Setting setting;
  if (asked.contains("--lanes")) setting.lanes = std::stoi(asked["--lanes"]);
  if (asked.contains("--looks")) setting.looks = asked["--looks"] != "0";
  if (asked.contains("--alone")) setting.alone = asked["--alone"] != "0";
  if (asked.contains("--max_rows")) setting.max_rows = std::stoll(asked["--max_rows"]);
  if (asked.contains("--outstanding")) setting.outstanding = std::stoul(asked["--outstanding"]);
  if (asked.contains("--run_us")) setting.run_time = std::chrono::microseconds(std::stoi(asked["--run_us"]));
  if (asked.contains("--seconds"))
    setting.measured = std::chrono::nanoseconds(static_cast<int64_t>(1e9 * std::stod(asked["--seconds"])));
  constexpr int kRounds = 3;
  std::vector<int> callers = {1, 8, 16, 64, 128, 256};
  if (asked.contains("--callers")) callers = {std::stoi(asked["--callers"])};
  std::vector<std::vector<double>> rates(callers.size()), user_us(rates), system_us(rates), sleeps(rates);
  std::string sizes;
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < callers.size(); ++i) {
      const Joined joined(setting);
      if (asked.contains("--trace")) trace::start(asked["--trace"]);
      const auto measured = joined.measure(callers[i]);
      if (asked.contains("--trace") && !trace::stop().ok()) return 1;
      rates[i].push_back(measured.calls_per_s);
      user_us[i].push_back(1e6 * measured.a_call.user_s);
      system_us[i].push_back(1e6 * measured.a_call.system_s);
      sleeps[i].push_back(measured.a_call.sleeps);
      sizes += round == 0 ? text(callers[i], " callers: ", joined.sizes(), "\n") : "";
    }
  }
  std::printf("%s", sizes.c_str());
  std::string json;
  for (size_t i = 0; i < callers.size(); ++i) {
    const Spread s = spread_of(rates[i]);
    std::printf(
        "%4d callers, %d lanes: %9.0f calls/s (%.0f .. %.0f); a call: %.1f + %.1f us of processors "
        "(program, system), %.2f sleeps\n",
        callers[i], setting.lanes, s.median, s.low, s.high, spread_of(user_us[i]).median,
        spread_of(system_us[i]).median, spread_of(sleeps[i]).median);
    json += text(i == 0 ? "{" : ", ", "\"", callers[i], "\": ", s.median);
  }
  if (asked.contains("--json")) std::ofstream(asked["--json"]) << json << "}\n";
  return 0;
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) { return heddle::bench::run(argc, argv); }
