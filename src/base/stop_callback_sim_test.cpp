#include "base/stop_callback.h"

#include <doctest/doctest.h>

#include <functional>
#include <optional>

#include "base/simulation_fixture.h"
#include "base/sync.h"
#include "base/thread.h"
#include "base/yield.h"

namespace heddle {
namespace {

using heddle::test::holds_for_seeds;

TEST_CASE("simulated: a stop callback's destructor waits for the callback, and no callback comes after it") {
  int called = 0, missed = 0;
  holds_for_seeds(500, [&](Simulation& sim) {
    std::stop_source source;
    Guarded<int, Rank::kPool> calls(0);
    bool alive = true;
    run_together(2, [&](int thread) {
      if (thread == 0) {
        source.request_stop();
        return;
      }
      {
        const StopCallback callback(source.get_token(), [&] {
          sim.expect(alive, "it is called while it lives");
          ++*calls.lock();  // a seam: the other thread may come to the destructor here
          yield_point("in the callback");
          sim.expect(alive, "its destructor waits until it is over");
        });
        yield_point("registered");
      }
      alive = false;
    });
    const int times = *calls.lock();
    sim.expect(times <= 1, "it is called once at most");
    (times == 1 ? called : missed) += 1;
  });
  CHECK(called > 0);
  CHECK(missed > 0);
}

TEST_CASE("simulated: several stop callbacks come and go while a stop is asked for, on any thread") {
  holds_for_seeds(300, [](Simulation& sim) {
    std::stop_source source;
    Atomic<int> calls{0}, told{0};
    run_together(4, [&](int thread) {
      if (thread == 0) {
        source.request_stop();
        return;
      }
      Guarded<bool, Rank::kPool> stopped(false);
      const StopCallback callback(source.get_token(), [&] {
        calls.add_relaxed(1);
        *stopped.lock() = true;
        stopped.notify_one();
      });
      if (thread == 1) return;  // does not stay
      auto held = stopped.lock();
      held.wait([&] { return *held; });
      told.add_relaxed(1);
    });
    sim.expect(told.load_relaxed() == 2, "who waited was told");
    sim.expect(calls.load_relaxed() >= 2 && calls.load_relaxed() <= 3, "each callback came once");
  });
}

TEST_CASE("simulated: a callback may destroy itself") {
  holds_for_seeds(100, [](Simulation& sim) {
    std::stop_source source;
    std::optional<StopCallback<std::function<void()>>> callback;
    int calls = 0;
    callback.emplace(source.get_token(), [&] {
      ++calls;
      yield_point("before");
      callback.reset();
      yield_point("after");
    });
    Thread stops("stops", [&] { source.request_stop(); });
    stops.join();
    sim.expect(calls == 1 && !callback, "it was called, and is gone");
  });
}

}  // namespace
}  // namespace heddle
