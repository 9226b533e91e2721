// Callers and leaders that look before they sleep, on threads of the machine: values; nothing is lost.
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

}  // namespace heddle::batch
