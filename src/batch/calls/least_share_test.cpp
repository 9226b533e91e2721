// How many lanes so many callers use, on a device where a lane with few rows is not worth it.
#include "batch/calls/coalescer_fixture.h"

namespace heddle::batch {

TEST_CASE(
    "callers use a lane each while there are enough, then one, and then as many as have their least share of "
    "rows") {
  constexpr int kLanes = 4, kCalls = 50;
  struct Case {
    int64_t undivided;
    int callers, lanes;
  };
  for (const auto& [undivided, callers, lanes] :
       {Case{0, 2, 4}, Case{0, 4, 4}, Case{0, 5, 1}, Case{0, 8, 1}, Case{0, 9, 2}, Case{0, 12, 2},
        Case{0, 30, 4}, Case{16, 4, 4}, Case{16, 5, 1}, Case{16, 16, 1}, Case{16, 17, 3}, Case{16, 30, 4}}) {
    CAPTURE(undivided);
    CAPTURE(callers);
    CoalescerOptions options = with(kLanes);
    options.door = false;
    options.least_share = 8;
    options.undivided = undivided;
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
