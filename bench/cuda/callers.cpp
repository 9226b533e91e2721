// Question  How many rows a second do blocking callers of one row get from a device, host memory to host
//           memory, and how long does each wait?
// Read as   One line of JSON a measurement: rows/s, p50 and p99 of a call, batches and their mean rows.
// Checked   Every answer, within --tolerance of the greatest value, against the device "host", asked once
//           for a pool of inputs: the first and one in 256, of a caller or of one of its submissions, whole,
//           of the others every 101st value, others each time, as the probe of ../shared does it. The checks
//           are part of the time; PyTorch's answers are checked before it. A wrong answer ends the program
//           with 1.
// Usage     cuda_callers --model FILE [--device cuda | --devices cuda] [--max_batch 64] [--models 1]
//           [--lengths 32:32] [--words 2000] [--pool 256] [--tolerance 2e-4] [--trace FILE]
//           [--queue WORKERS], `--devices cuda` being a model on all of that kind, and then, for each line,
//           CALLERS OUTSTANDING ROWS SECONDS: OUTSTANDING 0 is blocking calls, else each caller keeps so many
//           submissions under way, with --queue through a BatchQueue of so many workers; ROWS above 1: calls
//           with batches, which are not joined. `wake` is a line, too: from one thread's write into a pipe to
//           the other's return from read().
//           bench/cuda/figure.py runs it beside its peers.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "base/thread.h"
#include "heddle/heddle.h"

namespace heddle::bench {
namespace {

using Steady = std::chrono::steady_clock;
using Micro = std::chrono::duration<double, std::micro>;

struct Setting {
  std::string path, device = "cuda", trace;  // the last measurement's, where a file is named
  bool on_all = false;                       // of that kind
  int max_batch = 64;
  size_t models = 1, pool = 256;
  int queue = 0;  // workers of a BatchQueue that submissions go through; 0: none
  int64_t shortest = 32, longest = 32, words = 2000;  // lengths, and the vocabulary
  float tolerance = 2e-4F;
};

struct Work {
  int callers = 1;
  size_t outstanding = 0;
  int64_t rows = 1;
  double seconds = 0.3;
};

struct Question {
  std::vector<Tensor> owned, inputs;
  Tensor answer;     // the host's
  float greatest{};  // of its values, without their signs
};

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "cuda_callers: %s\n", why.c_str());
  std::_Exit(1);  // other threads run
}

bool is_number(const std::string& extent) {
  return extent.find_first_not_of("0123456789") == std::string::npos;
}

// Symbols behind the first axis are the length, one for all inputs of a question.
Question question_of(const Model& host, const Setting& setting, int64_t rows, unsigned seed) {
  std::mt19937 random(seed);
  const int64_t length =
      setting.shortest + static_cast<int64_t>(random()) % (setting.longest - setting.shortest + 1);
  Question made;
  for (const Port& port : host.inputs()) {
    Shape shape{rows};
    for (size_t axis = 1; axis < port.shape.size(); ++axis) {
      shape.push_back(is_number(port.shape[axis]) ? std::stoll(port.shape[axis]) : length);
    }
    Tensor tensor = Tensor::zeros(port.dtype, shape);
    const auto count = static_cast<size_t>(tensor.elements());
    if (port.dtype == DType::f32) {
      std::normal_distribution<float> normal;
      std::generate_n(static_cast<float*>(tensor.mutable_data()), count, [&] { return normal(random); });
    } else if (port.dtype == DType::i64) {
      const bool mask = port.name.find("mask") != std::string::npos;
      const bool types = port.name.find("type") != std::string::npos;
      std::generate_n(static_cast<int64_t*>(tensor.mutable_data()), count, [&] {
        return mask ? int64_t{1} : types ? int64_t{0} : static_cast<int64_t>(random()) % setting.words;
      });
    } else {
      give_up("inputs have to be f32 or i64");
    }
    // Borrowed: the callers of a question would all write the count of who owns it.
    made.inputs.push_back(Tensor::borrow(tensor.data(), port.dtype, shape));
    made.owned.push_back(std::move(tensor));
  }
  made.answer = host(std::span<const Tensor>(made.inputs)).front();
  for (const float value : made.answer.values<float>())
    made.greatest = std::max(made.greatest, std::abs(value));
  return made;
}

// NaN is within nothing.
bool right(const Tensor& got, const Question& asked, float tolerance, uint64_t number) {
  if (got.shape() != asked.answer.shape()) return false;
  const auto a = got.values<float>(), b = asked.answer.values<float>();
  const float most = tolerance * asked.greatest;
  const size_t step = number % 256 == 1 ? 1 : std::clamp<size_t>(a.size(), 1, 101);
  for (size_t i = number % step; i < a.size(); i += step) {
    if (!(std::abs(a[i] - b[i]) <= most)) return false;
  }
  return true;
}

// Of one caller: waits of its calls, and its place in the pool.
struct Caller {
  std::vector<double> us;
  size_t at = 0;
};

class Bench {
 public:
  explicit Bench(const Setting& setting) : setting_(setting), host_(load({Device("host")}, false)) {
    const std::vector<Device> devices =
        setting.on_all ? Device::all(setting.device) : std::vector<Device>{Device(setting.device)};
    for (size_t i = 0; i < setting.models; ++i) joined_.push_back(load(devices, true));
    apart_ = load(devices, false);
    BatchQueueOptions options;
    options.workers = setting.queue;
    options.limits.max_batch = setting.max_batch;
    if (setting.queue > 0) queue_ = std::make_unique<BatchQueue>(joined_.front(), options);
  }

  std::string measure(const Work& work) {
    ask_the_host(work.rows);
    const auto n = static_cast<size_t>(work.callers);
    std::vector<Caller> callers(n);
    std::vector<Steady::time_point> begins(n), ends(n);
    // From the first caller's first call, as the peers: their threads are there by then.
    const auto together = [&](double seconds) {
      run_together(work.callers, [&](int index) {
        const auto i = static_cast<size_t>(index);
        callers[i].us.clear();
        begins[i] = Steady::now();
        loop(work, callers[i], i, begins[i] + since(seconds));
        ends[i] = Steady::now();
      });
      return *std::max_element(ends.begin(), ends.end()) - *std::min_element(begins.begin(), begins.end());
    };
    for (size_t i = 0; i < n; ++i) callers[i].at = 7 * i;
    together(work.seconds / 4);  // warms up
    const auto before = stats();
    if (!setting_.trace.empty()) start_trace(setting_.trace);
    const Steady::duration took = together(work.seconds);
    if (!setting_.trace.empty()) stop_trace();
    const auto after = stats();
    return told(work, callers, std::chrono::duration<double>(took).count(), before, after);
  }

 private:
  Model load(const std::vector<Device>& devices, bool coalesce) const {
    ModelOptions options;
    options.devices = devices;
    options.max_batch = setting_.max_batch;
    options.coalesce = coalesce;
    return Model::load(setting_.path, options);
  }

  static Steady::duration since(double seconds) {
    return std::chrono::duration_cast<Steady::duration>(std::chrono::duration<double>(seconds));
  }

  void ask_the_host(int64_t rows) {
    auto& pool = pools_[rows];
    const size_t wanted = rows == 1 ? setting_.pool : 4;
    for (size_t i = pool.size(); i < wanted; ++i) {
      pool.push_back(question_of(host_, setting_, rows, static_cast<unsigned>(i)));
    }
    questions_ = &pool;
  }

  std::vector<CoalescingStats> stats() const {
    std::vector<CoalescingStats> found;
    for (const Model& model : joined_) found.push_back(model.coalescing_stats().value_or(CoalescingStats{}));
    return found;
  }

  const Question& next(Caller& caller) const { return (*questions_)[caller.at++ % questions_->size()]; }

  // `number`: of the answers to the caller, or to one of its submissions.
  void check(const Tensor& got, const Question& asked, uint64_t number) const {
    if (!right(got, asked, setting_.tolerance, number)) give_up("an answer was wrong");
  }

  void loop(const Work& work, Caller& caller, size_t index, Steady::time_point end) const {
    const Model& model = work.rows == 1 ? joined_[index % joined_.size()] : *apart_;
    if (work.outstanding != 0) return keep_outstanding(model, work.outstanding, caller, end);
    do {
      const Question& asked = next(caller);
      const auto begin = Steady::now();
      const auto got = model(std::span<const Tensor>(asked.inputs));
      caller.us.push_back(Micro(Steady::now() - begin).count());
      check(got.front(), asked, caller.us.size());
    } while (Steady::now() < end);
  }

  // To the model, or to the queue where there is one.
  template <class Then>
  void submit(const Model& model, const Question& asked, Then then) const {
    if (queue_ == nullptr) return model.submit(std::span<const Tensor>(asked.inputs), {}, std::move(then));
    queue_->submit(asked.inputs).then([then = std::move(then)](const BatchFuture& answer) {
      try {
        then(answer.get(), nullptr);
      } catch (const Error&) {
        then({}, std::current_exception());
      }
    });
  }

  // Waves: so many submissions, each of which is sent again by its own answer until the end. Answers of one
  // caller may come on several threads.
  void keep_outstanding(const Model& model, size_t count, Caller& caller, Steady::time_point end) const {
    struct alignas(64) Seat {  // its answers come on other threads than its neighbours'
      size_t at = 0;
      std::vector<double> us;
      Atomic<uint32_t> over{0};
    };
    std::vector<Seat> seats(count);
    std::function<void(Seat&)> send = [&](Seat& seat) {
      const Question& asked = (*questions_)[seat.at % questions_->size()];
      const auto begin = Steady::now();
      submit(model, asked, [&, begin](const std::vector<Tensor>& results, const std::exception_ptr& error) {
        if (error) give_up("a submission failed");
        const auto now = Steady::now();
        seat.us.push_back(Micro(now - begin).count());
        check(results.front(), asked, seat.us.size());
        seat.at += 7;
        if (now < end) return send(seat);
        seat.over.store_release(1);  // pairs with the wait below; nothing of the seat after it
      });
    };
    for (size_t i = 0; i < count; ++i) {
      seats[i].at = caller.at + i;
      send(seats[i]);
    }
    std::this_thread::sleep_until(end);  // looking sooner would take cores from those that answer
    for (Seat& seat : seats) {
      while (seat.over.load_acquire() == 0) usleep(50);
      caller.us.insert(caller.us.end(), seat.us.begin(), seat.us.end());
    }
    caller.at += count;
  }

  std::string told(const Work& work, const std::vector<Caller>& callers, double elapsed,
                   const std::vector<CoalescingStats>& before,
                   const std::vector<CoalescingStats>& after) const {
    std::vector<double> all;
    for (const Caller& caller : callers) all.insert(all.end(), caller.us.begin(), caller.us.end());
    std::sort(all.begin(), all.end());
    uint64_t batches = 0, calls = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      batches += after[i].batches - before[i].batches;
      calls += after[i].calls - before[i].calls;
    }
    const double mean = batches == 0 ? 0 : static_cast<double>(calls) / static_cast<double>(batches);
    const double rows = static_cast<double>(all.size()) * static_cast<double>(work.rows);
    return text("{\"callers\": ", work.callers, ", \"outstanding\": ", work.outstanding,
                ", \"rows\": ", work.rows, ", \"rows_per_s\": ", rows / elapsed,
                ", \"p50_us\": ", all[all.size() / 2], ", \"p99_us\": ", all[all.size() * 99 / 100],
                ", \"calls\": ", all.size(), ", \"batches\": ", batches, ", \"mean_batch\": ", mean,
                ", \"devices\": ", apart_->devices().size(), "}");
  }

  const Setting setting_;
  const Model host_;
  std::vector<Model> joined_;
  std::optional<Model> apart_;  // calls with batches
  std::unique_ptr<BatchQueue> queue_;
  std::map<int64_t, std::vector<Question>> pools_;
  const std::vector<Question>* questions_ = nullptr;
};

// From one thread's write to the other's return from read(), a half of there and back.
std::string wake() {
  int there[2], back[2];
  if (pipe(there) != 0 || pipe(back) != 0) give_up("no pipe could be made");
  constexpr int kTurns = 2000;
  std::vector<double> us;
  run_together(2, [&](int thread) {
    char byte = 0;
    for (int i = 0; i < kTurns; ++i) {
      const auto begin = Steady::now();
      if (thread == 0 && write(there[1], &byte, 1) != 1) give_up("a pipe broke");
      if (read(thread == 0 ? back[0] : there[0], &byte, 1) != 1) give_up("a pipe broke");
      if (thread == 1 && write(back[1], &byte, 1) != 1) give_up("a pipe broke");
      if (thread == 0) us.push_back(Micro(Steady::now() - begin).count() / 2);
    }
  });
  for (const int end : {there[0], there[1], back[0], back[1]}) close(end);
  std::sort(us.begin(), us.end());
  return text("{\"wake_us\": ", us[us.size() / 2], "}");
}

Setting setting_of(const std::map<std::string, std::string>& asked) {
  Setting made;
  for (const auto& [name, value] : asked) {
    if (name == "--model")
      made.path = value;
    else if (name == "--device" || name == "--devices") {
      made.device = value;
      made.on_all = name == "--devices";
    } else if (name == "--max_batch")
      made.max_batch = std::stoi(value);
    else if (name == "--models")
      made.models = std::stoul(value);
    else if (name == "--pool")
      made.pool = std::stoul(value);
    else if (name == "--trace")
      made.trace = value;
    else if (name == "--queue")
      made.queue = std::stoi(value);
    else if (name == "--words")
      made.words = std::stoll(value);
    else if (name == "--tolerance")
      made.tolerance = std::stof(value);
    else if (name == "--lengths") {
      made.shortest = std::stoll(value);
      made.longest = std::stoll(value.substr(value.find(':') + 1));
    } else
      give_up("there is no " + name);
  }
  if (made.path.empty()) give_up("--model is missing");
  return made;
}

int run(int argc, char** argv) {
  std::map<std::string, std::string> asked;
  for (int i = 1; i + 1 < argc; i += 2) asked[argv[i]] = argv[i + 1];
  try {
    Bench bench(setting_of(asked));
    for (std::string line; std::getline(std::cin, line);) {
      Work work;
      std::istringstream words(line);
      if (line == "wake") {
        std::cout << wake() << std::endl;
      } else if (words >> work.callers >> work.outstanding >> work.rows >> work.seconds) {
        std::cout << bench.measure(work) << std::endl;
      } else {
        give_up("a line is CALLERS OUTSTANDING ROWS SECONDS or wake");
      }
    }
  } catch (const std::exception& error) {
    give_up(error.what());
  }
  return 0;
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) { return heddle::bench::run(argc, argv); }
