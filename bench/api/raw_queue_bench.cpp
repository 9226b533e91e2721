// Question  How far is a call from the ceiling, the driver's own queue with nothing of Heddle's above it?
// Peer      In the same run: one command list per call, the program and its buffers made before, given to a
//           queue of the host driver by the thread that has it.
// Read as   wall ns per run of y = tanh(x w1) w2 over f32[1, 8], by one thread and up to one a processor;
//           the ratio is what streams, admission, fresh outputs and batches add. "apart": calls of the model
//           are not joined.
// Checked   the values of every run.
#include <memory>
#include <vector>

#include "bench/base/rounds.h"
#include "device/plain_source_fixture.h"
#include "drivers/host/host_device.h"
#include "heddle/heddle.h"
#include "tests/sim_device/two_products_fixture.h"

namespace heddle::bench {
namespace {

using Rows = sim::test::Rows;

constexpr uint64_t kCalls = 20'000;
constexpr int kRounds = 30;
constexpr size_t kWidth = 8;

std::vector<float> expected_of(const Rows& x) {
  std::vector<float> want(kWidth);
  for (size_t i = 0; i < kWidth; ++i) {
    want[i] = sim::test::reference(x.values.data(), static_cast<int64_t>(i));
  }
  return want;
}

bool is_close(const float* got, const std::vector<float>& want) {
  for (size_t i = 0; i < kWidth; ++i) {
    if (!(std::abs(got[i] - want[i]) < 1e-4F)) return false;
  }
  return true;
}

uint64_t on_queue(device::Device& device, const device::Program& program, Ref<const device::Program> shared,
                  int thread) {
  Rows x(1, 0.1 * thread);
  const std::vector<float> want = expected_of(x);
  std::vector<float> y(kWidth);
  const auto source = device::plain_source(device);
  Ref<device::Buffer> arena;
  if (program.arena_bytes() > 0)
    arena = require(source->allocate(program.arena_bytes(), device::MemoryKind::device));
  device::CommandList list;
  list.run(std::move(shared), std::move(arena), {x.view()},
           {device::View::contiguous(reinterpret_cast<std::byte*>(y.data()), ir::DType::kF32, {1, 8})});
  const auto queue = require(device.make_queue(NoLocksHeld{}));
  uint64_t right = 0;
  for (uint64_t i = 1; i <= kCalls; ++i) {
    y[0] = 0;
    if (!queue->submit(list, i, NoLocksHeld{}).ok()) return right;
    if (!queue->timeline()->wait(i, Deadline::never()).ok()) return right;
    right += is_close(y.data(), want) ? 1 : 0;
  }
  return right;
}

uint64_t by_call(const Model& model, int thread) {
  const Rows x(1, 0.1 * thread);
  const std::vector<float> want = expected_of(x);
  const Tensor in = Tensor::of<float>({1, int64_t{kWidth}}, std::span<const float>(x.values));
  uint64_t right = 0;
  for (uint64_t i = 0; i < kCalls; ++i)
    right += is_close(model({in})[0].values<float>().data(), want) ? 1 : 0;
  return right;
}

// The graph of two_products(), by the public builder.
Model model_of(bool coalesce) {
  GraphBuilder graph("products");
  const auto x = graph.input("x", DType::f32, {"batch", 8});
  const auto weight = [&](double first) {
    std::vector<float> values(64);
    for (size_t i = 0; i < 64; ++i) values[i] = static_cast<float>(first + 0.01 * static_cast<double>(i % 7));
    return graph.constant(Tensor::of<float>({8, 8}, std::span<const float>(values)));
  };
  const auto inner = graph.add("Tanh", {graph.add("MatMul", {x, weight(0.1)})});
  graph.output(graph.add("MatMul", {inner, weight(-0.2)}), "y");
  ModelOptions options;
  options.device = Device("host");
  options.coalesce = coalesce;
  return graph.build(options);
}

int run(int argc, char** argv) {
  const Ref<device::Device> driver = require(host::make_host_device());
  const auto module =
      require(driver->load(sim::test::two_products(), {}, device::plain_source(*driver), NoLocksHeld{}));
  const std::vector<ir::Extents> shapes = {{1, 8}};
  const Ref<const device::Program> program = require(module->compile(shapes, NoLocksHeld{}));
  const Model joined = model_of(true), apart = model_of(false);
  std::vector<Case> cases;
  for (const int threads : up_to_processors(2)) {
    cases.push_back({"the driver's queue", threads, kCalls,
                     [&](int thread) { return on_queue(*driver, *program, program, thread); }});
    cases.push_back({"call, apart", threads, kCalls, [&](int thread) { return by_call(apart, thread); }});
    cases.push_back({"call", threads, kCalls, [&](int thread) { return by_call(joined, thread); }});
  }
  const std::vector<Figure> figures = compare(cases, kRounds);
  print(figures);
  std::printf("the queue's time per run over a call's:\n");
  for (size_t i = 0; i < figures.size(); i += 3) {
    print_ratio(figures[i + 1], figures[i]);
    print_ratio(figures[i + 2], figures[i]);
  }
  write_json(argc, argv, "raw_queue", figures);
  return 0;
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) { return heddle::bench::run(argc, argv); }
