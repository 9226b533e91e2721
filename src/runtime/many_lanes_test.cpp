// As many lanes as large machines have processors: more than a word has bits. All of them are out at once,
// each with one owner, and two callers more than lanes wait for theirs.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "base/thread.h"
#include "runtime/runtime.h"
#include "runtime/test_device_fixture.h"

namespace heddle::runtime {

namespace {

constexpr int kTooMany = 2;  // callers beyond the lanes
constexpr ModelId kModel{41};

// Threads that are let in at once, and until then wait inside.
class Crowd {
 public:
  template <class Body>
  Crowd(int threads, Body body) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back("caller", [body, i] { body(i); });
  }

 private:
  std::vector<Thread> threads_;
};

// An owner of each lane, counted: `shared` says how often a lane had two.
struct Owners {
  explicit Owners(int lanes) : of(static_cast<size_t>(lanes)) {}
  void come(int lane) {
    if (of[static_cast<size_t>(lane)].add_acq_rel(1) != 0) shared.add_relaxed(1);
    entered.add_relaxed(1);
  }
  void go(int lane) { of[static_cast<size_t>(lane)].sub_acq_rel(1); }
  std::vector<Atomic<int>> of;
  Atomic<int> shared{0}, entered{0};
};

std::vector<float> twice(const test::Rows& x) {
  std::vector<float> values = x.values;
  for (float& value : values) value *= 2;
  return values;
}

Status double_values(const device::Run& run) {
  const auto* x = reinterpret_cast<const float*>(test::at(run.inputs[0]));
  auto* y = reinterpret_cast<float*>(test::at(run.outputs[0]));
  for (int64_t i = 0; i < run.inputs[0].extents.elements(); ++i) y[i] = 2 * x[i];
  return {};
}

}  // namespace

TEST_CASE("128 and 300 permits are out at once, each lane has one owner, and two callers more wait") {
  constexpr int kTimes = 30;
  for (const int lanes : {128, 300}) {
    CAPTURE(lanes);
    const auto governor = Governor::make("many", lanes);
    CHECK(governor->limit() == lanes);
    Owners owners(lanes);
    test::Latch latch;
    Atomic<int> failed{0};
    {
      const Crowd crowd(lanes + kTooMany, [&](int) {
        for (int i = 0; i < kTimes; ++i) {
          const auto permit = governor->enter(kModel, Deadline::never());
          if (!permit.ok()) {
            failed.add_relaxed(1);
            continue;
          }
          owners.come(permit->lane());
          latch.wait();
          owners.go(permit->lane());
        }
      });
      test::wait_until([&] { return governor->stats().waiting == kTooMany && latch.arrived() == lanes; });
      CHECK(governor->stats().in_flight == lanes);
      CHECK(owners.entered.load_acquire() == lanes);
      latch.open();
    }
    CHECK(failed.load_relaxed() == 0);
    CHECK(owners.shared.load_relaxed() == 0);
    CHECK(owners.entered.load_relaxed() == (lanes + kTooMany) * kTimes);
    CHECK(governor->stats().entered == static_cast<uint64_t>((lanes + kTooMany) * kTimes));
    CHECK(governor->stats().in_flight == 0);
    CHECK(governor->stats().waiting == 0);
  }
}

TEST_CASE("128 lone calls are on lanes at once, the door counts each, and two more find none") {
  constexpr int kLanes = 128;
  const auto governor = Governor::make("many-lone", kLanes);
  LoneDoor door(kLanes, 4);
  door.open(kLanes);
  Owners owners(kLanes);
  test::Latch latch;
  Atomic<int> none{0};
  {
    const Crowd crowd(kLanes + kTooMany, [&](int) {
      const Permit permit = governor->try_enter_lone(kModel, door.is_open());
      if (!permit) {
        none.add_acq_rel(1);
        return;
      }
      owners.come(permit.lane());
      door.count(permit.lane(), 3);
      latch.wait();
      owners.go(permit.lane());
    });
    test::wait_until([&] { return none.load_acquire() == kTooMany && latch.arrived() == kLanes; });
    CHECK(governor->lone(kModel) == kLanes);
    latch.open();
  }
  CHECK(owners.shared.load_relaxed() == 0);
  CHECK(owners.entered.load_relaxed() == kLanes);
  std::vector<uint64_t> by_rows(5);
  CHECK(door.sum(by_rows) == kLanes);
  CHECK(by_rows[3] == kLanes);
  CHECK(governor->lone(kModel) == 0);
}

TEST_CASE("130 callers of a device with 128 lanes: 128 run at once, and every answer is right") {
  constexpr int kLanes = 128, kCallers = kLanes + kTooMany, kTimes = 10;
  const auto device = std::make_shared<test::TestDevice>(test::TestOptions{.lanes = kLanes, .name = "wide"});
  test::Latch latch;
  device->set_kernel("doubled", [&](const device::Run& run) {
    latch.wait();
    return double_values(run);
  });
  Options options;
  options.streams = kCallers + 1;
  const Ref<Runtime> runtime = *Runtime::make(device, options);
  CHECK(runtime->governor().limit() == kLanes);
  const Ref<Model> model = *runtime->load(test::graph_named("doubled"));
  Atomic<int> right{0};
  {
    const Crowd crowd(kCallers, [&](int who) {
      for (int i = 0; i < kTimes; ++i) {
        test::Rows x(1 + who % 3, static_cast<float>(1000 * who + i));
        const device::View view = x.view();
        Call call;
        call.inputs = {&view, 1};
        const auto y = runtime->run(*model, call);
        if (y.ok() && test::values_of(y->front()) == twice(x)) right.add_relaxed(1);
      }
    });
    test::wait_until([&] { return latch.arrived() == kLanes; });
    test::wait_until([&] { return runtime->governor().stats().waiting == kTooMany; });
    latch.open();
  }
  CHECK(device->counts().most_running.load_relaxed() == kLanes);
  CHECK(right.load_relaxed() == kCallers * kTimes);
  CHECK(device->counts().runs.load_relaxed() == uint64_t{kCallers * kTimes});
  CHECK(runtime->governor().stats().entered == uint64_t{kCallers * kTimes});
}

TEST_CASE("130 threads have streams of their own at once where a pool has as many") {
  constexpr int kThreads = 130;
  const auto device = std::make_shared<test::TestDevice>(test::TestOptions{.name = "many-streams"});
  Options options;
  options.streams = kThreads + 1;
  options.exhaustion = Exhaustion::fail;
  const Ref<Runtime> runtime = *Runtime::make(device, options);
  std::vector<const Stream*> mine(kThreads);
  Atomic<int> failed{0};
  test::Latch latch;
  {
    const Crowd crowd(kThreads, [&](int who) {
      const auto lease = runtime->streams().lease();
      if (lease.ok()) {
        mine[static_cast<size_t>(who)] = lease->stream().get();
      } else {
        failed.add_relaxed(1);
      }
      latch.wait();
    });
    test::wait_until([&] { return latch.arrived() == kThreads; });
    CHECK(runtime->stats().streams.leased == kThreads);
    CHECK(runtime->streams().lease().status().code() == Code::exhausted);
    latch.open();
  }
  CHECK(failed.load_relaxed() == 0);
  std::sort(mine.begin(), mine.end());
  CHECK(std::unique(mine.begin(), mine.end()) == mine.end());
}

}  // namespace heddle::runtime
