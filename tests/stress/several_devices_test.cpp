// several_devices_test.cpp: a model on two devices of the kind that Device() is: what many threads get of it.
// Where a call goes is decided by src/api/replicas.h, whose test is tests/api/replicas_test.cpp.
#include <array>

#include "harness_fixture.h"
#include "tests/sanitized_fixture.h"

namespace stress {
namespace {

constexpr int kSharingThreads = 64, kSharedCalls = heddle::test::kSanitized ? 6 : 20;

// Two of the machine's, or two on the one that there is.
std::vector<heddle::Device> two_devices() {
  const std::string name = heddle::Device().name();
  const std::vector<heddle::Device> all = heddle::Device::all(name.substr(0, name.find(':')));
  if (all.size() > 1) return {all[0], all[1]};
  return {all[0], fresh_device()};
}

}  // namespace

TEST_CASE("sixty-four threads share two devices: each call is answered once and right, by both") {
  const std::vector<heddle::Device> devices = two_devices();
  for (auto make : {mlp_with, encoder_with}) {
    heddle::ModelOptions options;
    options.devices = devices;
    const Case c = make(options);
    CAPTURE(c.name);
    std::vector<std::atomic<int>> answers(kSharingThreads * kSharedCalls);
    std::atomic<int> right = 0;
    std::array<std::atomic<int>, 2> answered{};  // by the device in whose memory the results are
    const auto take = [&](size_t n, const std::vector<Tensor>& results) {
      right += c.matches(n, results) ? 1 : 0;
      ++answered[results.front().device().value().name() == devices[1].name() ? 1 : 0];
    };
    std::vector<heddle::DeviceStats> before;
    for (const heddle::Device& device : devices) before.push_back(device.stats());
    Tally tally;
    const auto errors = run_threads(kSharingThreads, [&](int thread) {
      for (int i = 0; i < kSharedCalls; ++i) {
        const auto n = static_cast<size_t>(thread * kSharedCalls + i);
        if (i % 4 != 3) {
          take(n, c.model(c.inputs[n % c.inputs.size()]));
          ++answers[n];
          continue;
        }
        tally.begin();
        c.model.submit(c.inputs[n % c.inputs.size()], {},
                       [&, n](const std::vector<Tensor>& results, const std::exception_ptr& error) {
                         if (error == nullptr) take(n, results);
                         ++answers[n];
                         tally.end();
                       });
      }
    });
    tally.wait();
    for (const std::string& error : errors) FAIL_CHECK(error);
    CHECK(right == kSharingThreads * kSharedCalls);
    for (const auto& each : answers) CHECK(each == 1);
    CHECK(c.model.coalescing_stats()->calls == kSharingThreads * kSharedCalls);
    for (size_t i = 0; i < devices.size(); ++i) CHECK(devices[i].stats().compiles > before[i].compiles);
    if (devices[0].name() == devices[1].name()) continue;  // their calls are counted together
    // No share: a device whose lane a loaded machine interrupts keeps its rows, and all others come to be
    // answered by the other one. Which device a call goes to is for tests/api/replicas_test.cpp.
    for (const int each : answered) CHECK(each > 0);
  }
}

}  // namespace stress
