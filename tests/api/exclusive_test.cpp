// Whoever has a device exclusively, and calls of its own thread.
#include <chrono>

#include "on_test_device_fixture.h"

namespace heddle::api_test {

// A batch that a thread of the model's leads waits for the end of the hold: its holder must not wait for it.
TEST_CASE("a holder's call is invalid at once, also where a batch that others lead would take it") {
  for (const bool asynchronous : {false, true}) {
    CAPTURE(asynchronous);
    runtime::Options options_of_one_lane;
    options_of_one_lane.in_flight = 1;
    const OnTestDevice f(asynchronous, options_of_one_lane);
    const Model model = f.model("affine", true);
    const Tensor x = rows(2, 5);
    Atomic<int> answers{0}, right{0};
    {
      const Exclusive alone(f.device);
      for (int i = 0; i < 2; ++i) {
        model.submit(std::vector{x}, {}, [&](std::vector<Tensor> y, const std::exception_ptr& error) {
          right.add_relaxed(error == nullptr && is_affine(x, y[0]) ? 1 : 0);
          answers.add_acq_rel(1);
        });
      }
      // The first one's leader is at the device, the second one waits to be led.
      wait_until([&] { return f.runtime().governor().stats().waiting == 1; });
      CallOptions options;
      options.timeout = std::chrono::seconds(5);
      CHECK_THROWS_WITH_AS(model({x}, options), doctest::Contains("release the exclusive hold first"), Error);
      CHECK(answers.load_acquire() == 0);
    }
    wait_until([&] { return answers.load_acquire() == 2; });
    CHECK(right.load_acquire() == 2);
    CHECK(is_affine(x, model({x})[0]));
  }
}

}  // namespace heddle::api_test
