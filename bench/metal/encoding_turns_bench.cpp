// Question  What does it cost that one thread at a time encodes an executable (Defences::encodes_in_turn)?
// Read as   processor time of submit() on the calling thread, median of eight threads' calls, on one model
//           and on a model each, with turns over without. The double's encoding stands for MPSGraph's; its
//           delays are off. Rounds of the two alternate. Bars: 1.1 on one model, 1.0 on eight; within 0.05
//           is noise.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string_view>
#include <vector>

#include "base/thread.h"
#include "device/plain_source_fixture.h"
#include "drivers/metal/metal_device.h"
#include "ir/builder.h"
#include "ir/tensor.h"
#ifndef __APPLE__
#include "tests/metal_double/control.h"
#endif

namespace heddle::bench {
namespace {

constexpr int kThreads = 8, kCalls = 400, kRounds = 9;

ir::Tensor ramp(const ir::Extents& extents) {
  ir::Tensor tensor = ir::Tensor::zeros(ir::DType::kF32, extents);
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, 0.01 * static_cast<double>(i % 17));
  return tensor;
}

device::View room(device::Device& device, const ir::Tensor& tensor) {
  Ref<device::Buffer> buffer = *device::PlainSource(device).allocate(static_cast<uint64_t>(tensor.bytes()));
  std::memcpy(buffer->host(), tensor.data(), static_cast<size_t>(tensor.bytes()));
  return device::View::contiguous(std::move(buffer), tensor.dtype(), tensor.extents());
}

struct Setting {
  Ref<device::Device> device;
  ir::Graph graph;
  std::vector<Ref<const device::Program>> programs;  // a model's each
  double wanted = 0;                                 // the last element of a result

  static Setting make(bool in_turn) {
    metal::MetalOptions options;
    options.defences.encodes_in_turn = in_turn;
    Setting made;
    made.device = *metal::make_metal_device(options);
    ir::Builder b;
    const ir::ValueId x = b.input("x", {ir::DType::kF32, {ir::Dim::symbol("batch"), 64}});
    b.output(*b.node("Relu", {*b.node("MatMul", {x, b.constant(ramp({64, 64}))})}));
    made.graph = *b.take();
    for (int i = 0; i < kThreads; ++i) {
      const auto module =
          *made.device->load(made.graph, {}, device::plain_source(*made.device), NoLocksHeld());
      made.programs.push_back(*module->compile(std::vector<ir::Extents>{{4, 64}}, NoLocksHeld()));
    }
    const auto result = *ir::evaluate(made.graph, std::vector<ir::Tensor>{ramp({4, 64})});
    made.wanted = result[0].get(result[0].elements() - 1);
    return made;
  }

  // The median of all threads' submissions, in microseconds; negative when a result was wrong.
  double round(bool one_model) const {
    std::vector<std::vector<double>> us(kThreads);
    Atomic<int> wrong{0};
    run_together(kThreads, [&](int thread) {
      const auto& program = programs[one_model ? 0 : static_cast<size_t>(thread)];
      const auto queue = *device->make_queue(NoLocksHeld());
      const auto arena = *device::arena_for(*device, *program);
      const device::View in = room(*device, ramp({4, 64})), out = room(*device, ramp({4, 64}));
      for (uint64_t value = 1; value <= kCalls; ++value) {
        device::CommandList list;
        list.run(program, arena, {in}, {out});
        const Duration before = thread_cpu_time();
        const Status submitted = queue->submit(list, value, NoLocksHeld());
        us[static_cast<size_t>(thread)].push_back(
            std::chrono::duration<double, std::micro>(thread_cpu_time() - before).count());
        if (!submitted.ok() || !queue->timeline()->wait(value, Deadline::never()).ok()) wrong.add_relaxed(1);
      }
      const double got = reinterpret_cast<const float*>(out.host())[4 * 64 - 1];
      if (std::abs(got - wanted) > 1e-3) wrong.add_relaxed(1);
    });
    if (wrong.load_acquire() != 0) return -1;
    std::vector<double> all;
    for (const auto& each : us) all.insert(all.end(), each.begin(), each.end());
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
  }
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int run(const char* json) {
#ifndef __APPLE__
  metal_double::set_longest_delay_us(0);
#endif
  const Setting with = Setting::make(true), without = Setting::make(false);
  double ratios[2] = {}, us[2][2] = {};
  for (const bool one_model : {true, false}) {
    std::vector<double> turns, plain, ratio;
    for (int i = 0; i < kRounds; ++i) {
      turns.push_back(with.round(one_model));
      plain.push_back(without.round(one_model));
      if (turns.back() < 0 || plain.back() < 0) return std::printf("a result is wrong\n"), 1;
      ratio.push_back(turns.back() / plain.back());
    }
    ratios[one_model ? 0 : 1] = median(ratio);
    us[one_model ? 0 : 1][0] = median(turns);
    us[one_model ? 0 : 1][1] = median(plain);
  }
  constexpr double kBars[2] = {1.1, 1.0};
  for (const int i : {0, 1}) {
    std::printf("%d threads, %s: %.2f us with turns, %.2f without: %.2f x; bar %.1f: %s\n", kThreads,
                i == 0 ? "one model" : "eight models", us[i][0], us[i][1], ratios[i], kBars[i],
                ratios[i] <= kBars[i] + 0.05 ? "met" : "NOT met");
  }
  if (json != nullptr) {
    std::ofstream(json) << "{\"one_model\": {\"us\": " << us[0][0] << ", \"ratio\": " << ratios[0]
                        << "}, \"eight_models\": {\"us\": " << us[1][0] << ", \"ratio\": " << ratios[1]
                        << "}}\n";
  }
  return 0;
}

}  // namespace
}  // namespace heddle::bench

int main(int count, char** words) {
  const bool json = count == 3 && std::string_view(words[1]) == "--json";
  if (count != 1 && !json) return std::fprintf(stderr, "usage: encoding_turns_bench [--json FILE]\n"), 2;
  return heddle::bench::run(json ? words[2] : nullptr);
}
