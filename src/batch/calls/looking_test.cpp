// Callers and leaders that look before they sleep, on threads of the machine: values; nothing is lost.
#include "base/looking.h"
#include "batch/calls/absent_fixture.h"

namespace heddle::batch {

TEST_CASE("callers that look, some with deadlines, each get their own rows, beside submissions") {
  struct Case {
    int lanes, callers, look_on;
  };
  for (const auto& [lanes, callers, look_on] : {Case{1, 3, 4}, {2, 12, 8}, {2, 12, 1}, {4, 24, 2}}) {
    CAPTURE(callers);
    CAPTURE(look_on);
    CoalescerOptions options = with(lanes, 8);
    options.door = false;
    options.look_on = look_on;
    Fixture f(options, false, false, {.asynchronous = true});
    Letters letters(f);
    constexpr int kCalls = 60;
    Atomic<int64_t> right{0}, late{0};
    run_together(callers, [&](int caller) {
      for (int i = 0; i < kCalls; ++i) {
        if (i % 5 == 0) CHECK(letters.post(Rows(1, static_cast<float>(i))).ok());
        Rows x(1 + i % 2, static_cast<float>(100 * caller + i));
        const bool hurries = i % 7 == 3;
        const auto result =
            f.call(x, hurries ? Deadline::in(std::chrono::microseconds(50)) : Deadline::never());
        if (hurries && result.status().code() == Code::deadline) {
          late.add_relaxed(1);
        } else {
          right.add_relaxed(f.right(x, result) ? 1 : 0);
        }
      }
    });
    const Letters::Counts answered = letters.wait();
    CHECK(answered.right == int64_t{callers} * kCalls / 5);
    CHECK(right.load_relaxed() + late.load_relaxed() == int64_t{callers} * kCalls);
    const Coalescer::Stats stats = f.coalescer->stats();
    CHECK(stats.parked == 0);
    CHECK(stats.calls + stats.left == static_cast<uint64_t>(callers) * kCalls * 6 / 5);
  }
}

TEST_CASE("who leads a run gives turns while it waits, among very many callers alone, and never after it") {
  constexpr int kCallers = 200, kCalls = 20;
  for (const int look_on : {1, 200}) {
    CAPTURE(look_on);
    CoalescerOptions options = with(1, 128);
    options.door = false;
    options.look_on = look_on;
    Fixture f(options);
    Atomic<int> widest{0}, right{0}, after{0};
    f.kernel = [&](const device::Run&) {
      widest.max_relaxed(Looker::of_this_thread().crowd);
      return Status();
    };
    run_together(kCallers, [&](int caller) {
      for (int i = 0; i < kCalls; ++i) {
        Rows x(1, static_cast<float>(100 * caller + i));
        right.add_relaxed(f.right(x, f.call(x)) ? 1 : 0);
        after.max_relaxed(Looker::of_this_thread().crowd);
      }
    });
    CHECK(right.load_relaxed() == kCallers * kCalls);
    CHECK(after.load_relaxed() == 1);
    CHECK((widest.load_relaxed() > 1) == (look_on == 1));
  }
}

}  // namespace heddle::batch
