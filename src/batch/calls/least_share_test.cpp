// How many lanes so many callers use, on a device where a lane with few rows is not worth it.
#include "batch/calls/coalescer_fixture.h"

namespace heddle::batch {

TEST_CASE(
    "callers use a lane each while there are enough, then one, and from three on as many as have their least "
    "share of rows") {
  constexpr int kLanes = 4, kCalls = 50;
  struct Case {
    int callers, lanes;
  };
  for (const auto& [callers, lanes] : {Case{2, 4}, Case{4, 4}, Case{5, 1}, Case{8, 1}, Case{9, 1},
                                       Case{16, 1}, Case{17, 3}, Case{24, 3}, Case{30, 4}}) {
    CAPTURE(callers);
    CoalescerOptions options = with(kLanes);
    options.door = false;
    options.least_share = 8;
    options.look_on = 8;
    Fixture f(options);
    Latch latch;
    f.kernel = [&](const device::Run&) {
      latch.wait();
      return Status();
    };
    Atomic<int64_t> right{0};
    std::vector<Thread> threads;
    for (int caller = 0; caller < callers; ++caller) {
      threads.emplace_back("caller", [&, caller] {
        for (int i = 0; i < kCalls; ++i) {
          Rows x(1, static_cast<float>(100 * caller + i));
          right.add_relaxed(f.right(x, f.call(x)) ? 1 : 0);
        }
      });
    }
    const auto running = static_cast<size_t>(std::min(callers, kLanes));
    wait_until([&] {
      return static_cast<size_t>(latch.arrived()) == running &&
             f.coalescer->stats().parked == static_cast<size_t>(callers) - running;
    });
    CHECK(f.coalescer->stats().lanes == lanes);
    latch.open();
    threads.clear();
    CHECK(right.load_relaxed() == callers * kCalls);
    CHECK(f.coalescer->stats().calls == static_cast<uint64_t>(callers) * kCalls);
    CHECK(f.coalescer->stats().parked == 0);
  }
}

}  // namespace heddle::batch
