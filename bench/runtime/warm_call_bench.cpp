// Question  What does the runtime itself add to a warm call: checks, program look-up, permit, fresh output,
//           submission?
// Peer      The same copy of 16 bytes into a fresh heap block, without any runtime.
// Read as   ns per call of an identity model on the runtime's test device, whose own share is one copy and a
//           few counters. The whole call's bar is 1 us on one thread; the driver's part comes on top of this.
#include <cstring>
#include <memory>
#include <vector>

#include "bench/base/rounds.h"
#include "runtime/runtime.h"
#include "runtime/test_device_fixture.h"

namespace heddle::bench {
namespace {

constexpr uint64_t kCalls = 50'000;
constexpr int kRounds = 11;

int run(int argc, char** argv) {
  using runtime::test::Rows;
  const auto device = std::make_shared<runtime::test::TestDevice>(runtime::test::TestOptions{.lanes = 8});
  const auto runtime = *runtime::Runtime::make(device);
  const auto model = *runtime->load(runtime::test::graph_named("identity"));
  const auto lane_call = [&](int thread) {
    uint64_t right = 0;
    Rows x(1, static_cast<float>(thread));
    const device::View view = x.view();
    for (uint64_t i = 0; i < kCalls; ++i) {
      const auto y = runtime->run(*model, {.inputs = {&view, 1}});
      right += std::memcmp(y->front().host(), view.host(), 16) == 0 ? 1 : 0;
    }
    return right;
  };
  const auto stream_call = [&](int thread) {
    uint64_t right = 0;
    const auto lease = *runtime->streams().lease();
    Rows x(1, static_cast<float>(thread));
    const device::View view = x.view();
    for (uint64_t i = 0; i < kCalls; ++i) {
      const auto y = runtime->run(*model, {.inputs = {&view, 1}, .stream = &*lease});
      right += std::memcmp(y->front().host(), view.host(), 16) == 0 ? 1 : 0;
    }
    return right;
  };
  const auto bare = [&](int thread) {
    uint64_t right = 0;
    Rows x(1, static_cast<float>(thread));
    const device::View view = x.view();
    for (uint64_t i = 0; i < kCalls; ++i) {
      const auto y = std::make_unique<std::byte[]>(16);
      std::memcpy(y.get(), view.host(), 16);
      right += std::memcmp(y.get(), view.host(), 16) == 0 ? 1 : 0;
    }
    return right;
  };
  std::vector<Case> cases;
  for (const int threads : {1, 8}) {
    cases.push_back({"call on a lane", threads, kCalls, lane_call});
    cases.push_back({"call on a leased stream", threads, kCalls, stream_call});
    cases.push_back({"copy into a fresh block", threads, kCalls, bare});
  }
  const std::vector<Figure> figures = compare(cases, kRounds);
  print(figures);
  write_json(argc, argv, "warm_call", figures);
  return 0;
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) { return heddle::bench::run(argc, argv); }
