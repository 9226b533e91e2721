// Question  What does a warm call of a model that does nothing cost in C++: heddle.h, runtime, host driver, a
//           fresh output?
// Peer      The same copy of 32 bytes into a fresh heap block.
// Read as   ns per call of an identity graph over f32[1, 8], one thread; "on a stream" under a StreamGuard.
//           The bar is 300. Calls a second of eight threads over those of one: at least 5 on 16 cores.
// Checked   every result is the input's values, and not the input's memory.
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "bench/base/rounds.h"
#include "heddle/heddle.h"

namespace heddle::bench {
namespace {

constexpr uint64_t kCalls = 50'000;
constexpr int kRounds = 15;
constexpr size_t kValues = 8;
constexpr double kBarNs = 300;
constexpr int kThreads = 8;

Model identity(const Device& device) {
  GraphBuilder graph("identity");
  const auto x = graph.input("x", DType::f32, {"n", int64_t{kValues}});
  graph.output(graph.add("Identity", {x}), "y");
  ModelOptions options;
  options.device = device;
  return graph.build(options);
}

uint64_t call(const Model& model, int thread) {
  uint64_t right = 0;
  const auto first = static_cast<float>(thread);
  const Tensor x = Tensor::of<float>({1, kValues}, {first, 1, 2, 3, 4, 5, 6, 7});
  const void* from = x.data();
  const std::span<const Tensor> inputs(&x, 1);
  for (uint64_t i = 0; i < kCalls; ++i) {
    const std::vector<Tensor> y = model(inputs);
    const void* to = y[0].data();
    right += to != from && std::memcmp(to, from, kValues * sizeof(float)) == 0 ? 1 : 0;
  }
  return right;
}

uint64_t copy(int thread) {
  uint64_t right = 0;
  std::array<float, kValues> x{static_cast<float>(thread), 1, 2, 3, 4, 5, 6, 7};
  for (uint64_t i = 0; i < kCalls; ++i) {
    const auto y = std::make_unique<std::byte[]>(sizeof(x));
    std::memcpy(y.get(), x.data(), sizeof(x));
    right += std::memcmp(y.get(), x.data(), sizeof(x)) == 0 ? 1 : 0;
  }
  return right;
}

int run(int argc, char** argv) {
  const Device device("host");
  const Model model = identity(device);
  const Stream stream(device);
  const std::vector<Case> cases = {
      {"call", 1, kCalls, [&](int thread) { return call(model, thread); }},
      {"call on a stream", 1, kCalls,
       [&](int thread) {
         const StreamGuard guard(stream);
         return call(model, thread);
       }},
      {"copy into a fresh block", 1, kCalls, copy},
      {"call", kThreads, kCalls, [&](int thread) { return call(model, thread); }},
  };
  const std::vector<Figure> figures = compare(cases, kRounds);
  print(figures);
  for (size_t i = 0; i < 2; ++i) {
    std::printf("%s: %.2f of the bar of %.0f ns (processor time)\n", figures[i].name.c_str(),
                figures[i].cpu_ns.median / kBarNs, kBarNs);
  }
  std::printf("calls a second, %d threads over one: %.2f\n", kThreads,
              figures[0].wall_ns.median / figures[3].wall_ns.median);
  write_json(argc, argv, "warm_identity", figures);
  return 0;
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) { return heddle::bench::run(argc, argv); }
