// The host device of a machine with 128 processors, as its files tell of it, on the machine at hand: as many
// lanes and helpers, 130 callers, and more memory nodes than one. What a model answers is right, and what its
// weights take is counted and comes back.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/thread.h"
#include "batch/calls/coalescer.h"
#include "drivers/host/host_device.h"
#include "drivers/host/machine/fake_machine_fixture.h"
#include "ir/builder.h"
#include "runtime/runtime.h"
#include "runtime/test_device_fixture.h"

namespace heddle::host {
namespace {

using device::View;

constexpr int kCallers = 130;
constexpr int64_t kWide = 768, kOut = 1024;  // a weight of 3 MiB

float weight_at(int64_t i, int64_t j) { return static_cast<float>(i % 7 - j % 5); }

// y = relu(x @ w) over f32[batch, 768]; whole numbers, small enough that any order of adding up is exact.
ir::Graph whole_number_graph() {
  std::vector<float> w(kWide * kOut);
  for (int64_t i = 0; i < kWide; ++i) {
    for (int64_t j = 0; j < kOut; ++j) w[static_cast<size_t>(i * kOut + j)] = weight_at(i, j);
  }
  ir::Builder b("whole");
  const ir::ValueId x = b.input("x", {ir::DType::kF32, {ir::Dim::symbol("batch"), ir::Dim(kWide)}});
  const ir::ValueId y =
      *b.node("Linear", {x, b.constant(ir::Tensor::of<float>(ir::DType::kF32, {kWide, kOut}, w))});
  b.output(*b.node("Relu", {y}), "y");
  return *b.take();
}

struct WholeRows {
  WholeRows(int64_t rows, int seed) : values(static_cast<size_t>(rows * kWide)), extents{rows, kWide} {
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>((static_cast<int>(i) + seed) % 3);
  }
  View view() {
    return View::contiguous(reinterpret_cast<std::byte*>(values.data()), ir::DType::kF32, extents);
  }
  // One after the other, without the device.
  std::vector<float> expected() const {
    std::vector<float> out(static_cast<size_t>(extents[0] * kOut), 0);
    for (int64_t row = 0; row < extents[0]; ++row) {
      for (int64_t i = 0; i < kWide; ++i) {
        const float x = values[static_cast<size_t>(row * kWide + i)];
        for (int64_t j = 0; j < kOut; ++j) out[static_cast<size_t>(row * kOut + j)] += x * weight_at(i, j);
      }
    }
    for (float& value : out) value = std::max(value, 0.0F);
    return out;
  }
  std::vector<float> values;
  ir::Extents extents;
};

struct ManyProcessors {
  explicit ManyProcessors(const FakeFiles& files)
      : root(files), device(*make_host_device({.root = root.path(), .core = [] { return fake_core; }})) {
    fake_core = 0;
    runtime = *runtime::Runtime::make(device, {});
    model = *runtime->load(whole_number_graph());
    batch::CoalescerOptions options;
    options.lanes = device->traits().lanes;
    options.lanes_alone = device->traits().queue_depth;
    options.chooses_lanes = options.door = true;
    coalescer = std::make_shared<batch::Coalescer>(
        runtime, model, *batch::RowLayout::make(model->inputs(), model->outputs(), {}, false), options);
  }
  ~ManyProcessors() {
    if (coalescer != nullptr) coalescer->close();
  }
  bool call_is_right(int64_t rows, int seed) {
    WholeRows x(rows, seed);
    const View view = x.view();
    const auto y = coalescer->call({&view, 1}, Deadline::never(), {});
    return y.ok() && runtime::test::values_of(y->front()) == x.expected();
  }
  uint64_t weight_bytes() const { return runtime::test::bytes_of_tensors(*runtime); }

  FakeRoot root;
  Ref<device::Device> device;
  Ref<runtime::Runtime> runtime;
  Ref<runtime::Model> model;
  Ref<batch::Coalescer> coalescer;
};

}  // namespace

TEST_CASE("a model on 128 processors answers 130 threads, each call once and right") {
  constexpr int kTimes = 6;
  ManyProcessors f(fake_processors(128));
  CHECK(f.device->traits().threads == 128);
  CHECK(f.device->traits().lanes == 128);
  CHECK(f.runtime->governor().limit() == 256);
  Atomic<int> right{0};
  run_together(kCallers, [&](int who) {
    for (int i = 0; i < kTimes; ++i) right.add_relaxed(f.call_is_right(1 + who % 2, who + i) ? 1 : 0);
  });
  CHECK(right.load_relaxed() == kCallers * kTimes);
  CHECK(f.runtime->governor().stats().in_flight == 0);
  CHECK(f.call_is_right(40, 5));  // alone: 127 helpers are welcome
}

TEST_CASE("a device of 2 and of 4 memory nodes counts its copies of the weights, and gives them back") {
  constexpr uint64_t kPacked = kWide * kOut * sizeof(float);
  for (const int nodes : {2, 4}) {
    CAPTURE(nodes);
    ManyProcessors f(fake_nodes({.nodes = nodes, .cores_each = 32}));
    const uint64_t before = f.weight_bytes();
    CHECK(f.call_is_right(1, 3));
    const uint64_t one = f.weight_bytes() - before;
    CHECK(one >= kPacked);
    Atomic<int> right{0};
    run_together(kCallers, [&](int who) {
      fake_core = who % (32 * nodes);
      right.add_relaxed(f.call_is_right(1, who) ? 1 : 0);
    });
    CHECK(right.load_relaxed() == kCallers);
    const uint64_t all = f.weight_bytes() - before;
    CHECK(all >= static_cast<uint64_t>(nodes) * kPacked);
    CHECK(all < static_cast<uint64_t>(nodes) * kPacked * 5 / 4);
    f.coalescer->close();
    CHECK(f.model->close(Deadline::never()).ok());
    f.coalescer.reset();
    f.model.reset();
    CHECK(f.weight_bytes() == 0);
  }
}

}  // namespace heddle::host
