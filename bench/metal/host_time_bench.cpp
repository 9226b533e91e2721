// Question  How much time of the calling thread does one submission to the Metal driver cost?
// Read as   processor time of submit(), median and quartiles, on the double with its delays off. The double's
//           execution is on threads of its own and not counted; making its objects (command buffer, tensor
//           data, encoders), which Metal would do in its own way, is. The bar is 8 us.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string_view>
#include <vector>

#include "device/plain_source_fixture.h"
#include "drivers/metal/metal_device.h"
#include "ir/builder.h"
#include "ir/tensor.h"
#include "tests/close_fixture.h"
#ifndef __APPLE__
#include "tests/metal_double/control.h"
#endif

namespace heddle::bench {
namespace {

constexpr int kCalls = 4000;
constexpr double kBarUs = 8;

ir::Tensor waves(const ir::Extents& extents) {
  ir::Tensor tensor = ir::Tensor::zeros(ir::DType::kF32, extents);
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, std::sin(static_cast<double>(i)));
  return tensor;
}

device::View upload(device::Device& device, const ir::Tensor& tensor) {
  const auto bytes = static_cast<uint64_t>(tensor.bytes());
  Ref<device::Buffer> buffer = *device::PlainSource(device).allocate(bytes);
  std::memcpy(buffer->host(), tensor.data(), bytes);
  return device::View::contiguous(std::move(buffer), tensor.dtype(), tensor.extents());
}

int run(const char* json) {
#ifndef __APPLE__
  metal_double::set_longest_delay_us(0);
#endif
  auto device = metal::make_metal_device();
  if (!device.ok()) return std::printf("%s\n", to_string(device.status()).c_str()), 1;
  ir::Builder b;
  const ir::ValueId x = b.input("x", {ir::DType::kF32, {ir::Dim::symbol("batch"), 64}});
  b.output(*b.node("Relu", {*b.node("MatMul", {x, b.constant(waves({64, 64}))})}));
  const ir::Graph graph = *b.take();
  const std::vector<ir::Tensor> inputs = {waves({4, 64})};
  const auto module = *(*device)->load(graph, {}, device::plain_source(**device), NoLocksHeld());
  const auto program = *module->compile(std::vector<ir::Extents>{{4, 64}}, NoLocksHeld());
  const auto queue = *(*device)->make_queue(NoLocksHeld());
  const auto arena = *device::arena_for(**device, *program);
  const device::View in = upload(**device, inputs[0]), out = upload(**device, waves({4, 64}));
  std::vector<double> us;
  for (uint64_t value = 1; value <= kCalls; ++value) {
    device::CommandList list;
    list.run(program, arena, {in}, {out});
    const Duration before = thread_cpu_time();
    const Status submitted = queue->submit(list, value, NoLocksHeld());
    us.push_back(std::chrono::duration<double, std::micro>(thread_cpu_time() - before).count());
    const Status over = queue->timeline()->wait(value, Deadline::never());
    if (!submitted.ok() || !over.ok()) return std::printf("a submission failed\n"), 1;
  }
  const auto wanted = *ir::evaluate(graph, inputs);
  for (int64_t i = 0; i < wanted[0].elements(); ++i) {
    const double got = reinterpret_cast<const float*>(out.host())[i];
    if (!test::is_close(got, wanted[0].get(i), {0, 1e-4}))
      return std::printf("element %d is wrong\n", int(i)), 1;
  }
  std::sort(us.begin(), us.end());
  const double median = us[us.size() / 2];
  std::printf("submit: %.2f us (quartiles %.2f to %.2f) of the caller's processor time; bar %.0f: %s\n",
              median, us[us.size() / 4], us[us.size() * 3 / 4], kBarUs, median <= kBarUs ? "met" : "NOT met");
  if (json != nullptr) {
    std::ofstream(json) << "{\"submit_us\": [" << us[us.size() / 4] << ", " << median << ", "
                        << us[us.size() * 3 / 4] << "], \"bar_us\": " << kBarUs << "}\n";
  }
  return 0;
}

}  // namespace
}  // namespace heddle::bench

int main(int count, char** words) {
  const bool json = count == 3 && std::string_view(words[1]) == "--json";
  if (count != 1 && !json) return std::fprintf(stderr, "usage: host_time_bench [--json FILE]\n"), 2;
  return heddle::bench::run(json ? words[2] : nullptr);
}
