// peak_bench.cpp: what the processor can do at most.
//
//   Question  How near does a large product come to the processor's peak, on one core and two?
//   Peer      A loop of independent multiply-adds in registers (sized for AVX-512), one thread a core: the
//             peak in f32. In bf16 it is twice that where the processor pairs its operands, as Zen 4 does.
//   Read as   Billions of operations a second of processor time and of wall time, all threads together, and
//             the share of the f32 peak. bench/models/shares_bench.py compares models with the product.
//   Checked   The loop ends at its fixed point; every element of the product is known.
#include <algorithm>
#include <array>
#include <memory>

#include "bench/base/rounds.h"
#include "device/plain_source_fixture.h"
#include "drivers/host/host_device.h"
#include "drivers/host/kernels/elementwise/vectorised.h"
#include "ir/builder.h"

namespace heddle::bench {
namespace {

constexpr int kRounds = 9;
constexpr int64_t kSize = 1024;
constexpr int kMostThreads = 2;

constexpr int kChains = 24;  // enough to hide the latency of each, few enough for the registers
constexpr int kWidth = 16;

HEDDLE_VECTORISED bool multiply_add(uint64_t steps) {
  typedef float Lanes __attribute__((vector_size(kWidth * sizeof(float))));
  Lanes chains[kChains];
  for (int i = 0; i < kChains; ++i) chains[i] = Lanes{} + static_cast<float>(i);
  for (uint64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) chains[i] = chains[i] * 0.5f + 1.0f;
  }
  return std::all_of(chains, chains + kChains, [](const Lanes& chain) {
    for (int i = 0; i < kWidth; ++i) {
      if (chain[i] != 2.0f) return false;
    }
    return true;
  });
}

// x @ w with w[k, j] = (j % 5 + 1) / 4 and x[i, k] = (i % 7 + 1) / 8: exact in bf16, and so is the answer in
// f32.
Result<Ref<const device::Module>> load_product(device::Device& device, const char* precision) {
  ir::Tensor w = ir::Tensor::zeros(ir::DType::kF32, {kSize, kSize});
  for (int64_t i = 0; i < w.elements(); ++i) w.set(i, static_cast<double>(i % kSize % 5 + 1) / 4);
  ir::Builder b;
  b.output(require(b.node("Linear", {b.input("x", w.type()), b.constant(w)})));
  return device.load(require(b.take()), {.precision = precision}, device::plain_source(device),
                     NoLocksHeld());
}

class Product {
 public:
  Product(device::Device& device, const device::Module& module)
      : queue_(require(device.make_queue(NoLocksHeld()))) {
    x_ = ir::Tensor::zeros(ir::DType::kF32, {kSize, kSize});
    made_ = ir::Tensor::zeros(ir::DType::kF32, {kSize, kSize});
    for (int64_t i = 0; i < x_.elements(); ++i) x_.set(i, static_cast<double>(i / kSize % 7 + 1) / 8);
    program_ = require(module.compile({{x_.extents()}}, NoLocksHeld()));
    const Ref<device::Buffer> arena = require(device::arena_for(device, *program_));
    const auto view = [](ir::Tensor& t) {
      return device::View::contiguous(static_cast<std::byte*>(t.mutable_data()), t.dtype(), t.extents());
    };
    list_.run(program_, arena, {view(x_)}, {view(made_)});
  }

  uint64_t run(uint64_t times) {
    for (uint64_t i = 0; i < times; ++i) static_cast<void>(queue_->submit(list_, ++value_, NoLocksHeld()));
    const auto* made = static_cast<const float*>(made_.data());
    for (int64_t i = 0; i < made_.elements(); ++i) {
      const auto x = static_cast<float>(i / kSize % 7 + 1) / 8, w = static_cast<float>(i % kSize % 5 + 1) / 4;
      if (made[i] != static_cast<float>(kSize) * x * w) return 0;
    }
    return times;
  }

 private:
  std::unique_ptr<device::Queue> queue_;
  ir::Tensor x_, made_;
  Ref<const device::Program> program_;
  device::CommandList list_;
  uint64_t value_ = 0;
};

int run(int argc, char** argv) {
  constexpr uint64_t kSteps = 2'000'000, kTimes = 20;
  const auto device = require(host::make_host_device({.threads = 1}));
  std::vector<std::unique_ptr<Product>> products;
  std::vector<Case> cases;
  std::vector<double> operations;  // of one operation of each case
  for (int threads = 1; threads <= kMostThreads; ++threads) {
    cases.push_back({text("multiply-adds in registers, ", threads, " threads"), threads, kSteps,
                     [](int) { return multiply_add(kSteps) ? kSteps : 0; }});
    operations.push_back(2.0 * kChains * kWidth);
  }
  for (const char* precision : {"f32", "bf16"}) {
    const auto module = load_product(*device, precision);
    if (!module.ok()) {
      std::printf("%s: left out, %s\n", precision, to_string(module.status()).c_str());
      continue;
    }
    for (int threads = 1; threads <= kMostThreads; ++threads) {
      std::array<Product*, kMostThreads> own{};
      for (int i = 0; i < threads; ++i) {
        products.push_back(std::make_unique<Product>(*device, **module));
        own[static_cast<size_t>(i)] = products.back().get();
      }
      cases.push_back({text("product of 1024 x 1024 in ", precision, ", ", threads, " threads"), threads,
                       kTimes, [own](int thread) { return own[static_cast<size_t>(thread)]->run(kTimes); }});
      operations.push_back(2.0 * kSize * kSize * kSize);
    }
  }
  const std::vector<Figure> figures = compare(cases, kRounds);
  const auto rate = [&](size_t i) { return operations[i] / figures[i].cpu_ns.median * figures[i].threads; };
  std::printf("%-44s %12s %12s %10s\n", "", "Gop/s (cpu)", "Gop/s (wall)", "of peak");
  for (size_t i = 0; i < figures.size(); ++i) {
    const double peak = rate(static_cast<size_t>(figures[i].threads) - 1);
    std::printf("%-44s %12.1f %12.1f %10.2f\n", figures[i].name.c_str(), rate(i),
                operations[i] / figures[i].wall_ns.median, rate(i) / peak);
  }
  write_json(argc, argv, "peak", figures);
  return 0;
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) { return heddle::bench::run(argc, argv); }
