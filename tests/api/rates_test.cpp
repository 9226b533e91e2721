// Rates of a device whose memory the host cannot address.
#include "on_test_device_fixture.h"

namespace heddle::api_test {

TEST_CASE("rates are of the device: no call that is timed moves its input or its result") {
  const OnTestDevice on(runtime::test::TestOptions{.asynchronous = true, .unified = false});
  ModelOptions options;
  options.device = on.device;
  const Rates rates = measure_rates(options);
  CHECK(rates.flops_per_s > 0);
  CHECK(rates.memory_bytes_per_s > 0);
  constexpr uint64_t kInputs = 5, kLeastCalls = 7;
  CHECK(on.driver->counts().copies.load_acquire() == kInputs);
  CHECK(on.driver->counts().runs.load_acquire() >= kInputs * kLeastCalls);
}

}  // namespace heddle::api_test
