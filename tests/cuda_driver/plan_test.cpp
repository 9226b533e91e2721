// What a module says that it would do: which kernels, which products of cuBLASLt, how much memory.
#include <doctest/doctest.h>

#include "device/plain_source_fixture.h"
#include "drivers/cuda/cuda_device.h"
#include "drivers/cuda/program.h"
#include "ir/builder.h"
#include "ir/op.h"
#include "ir/ops/control.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/driver_conformance/session_fixture.h"

namespace heddle::cuda {
namespace {

using conformance::random_tensor;
using ir::DType;

// y = tanh(sigmoid(x W) + 1) V, then its rows one after another; W and V are 16 x 16.
ir::Graph layers(DType dtype) {
  ir::Builder b;
  const auto weight = [&](uint32_t seed) { return b.constant(random_tensor(dtype, {16, 16}, seed)); };
  const ir::ValueId x = b.input("x", {dtype, {ir::Dim::symbol("rows"), 16}});
  const ir::ValueId first = *b.node("MatMul", {x, weight(1)}, {}, "first");
  const ir::ValueId gate = *b.node("Sigmoid", {first}), one = b.constant(ir::Tensor::scalar(dtype, 1));
  const ir::ValueId bent = *b.node("Tanh", {*b.node("Add", {gate, one})}, {}, "bent");
  const ir::ValueId second = *b.node("MatMul", {bent, weight(2)}, {}, "second");
  b.output(*b.node("Softmax", {second}, {}, "shares"));
  b.output(*b.node("Reshape", {second, b.constant(ir::Tensor::of_i64({-1}))}, {}, "flat"));
  return *b.take();
}

struct Planned {
  Ref<const device::Module> module;
  plan::ProgramPlan plan;
};

Planned planned(ir::Graph graph, const std::vector<ir::Extents>& shapes, bool exact = false) {
  const auto device = make_cuda_device(
      {.api = &cuda_double::api(), .image = cuda_double::image(), .blas = &cuda_double::blas_lt()});
  REQUIRE(device.ok());
  const auto module =
      (*device)->load(std::move(graph), {.exact = exact}, device::plain_source(**device), NoLocksHeld());
  REQUIRE_MESSAGE(module.ok(), to_string(module.status()));
  const auto plan = (*module)->plan(shapes, UINT64_MAX, NoLocksHeld());
  REQUIRE_MESSAGE(plan.ok(), to_string(plan.status()));
  return {*module, *plan};
}

std::string paths(const plan::ProgramPlan& plan) {
  std::string all;
  for (const plan::PlannedNode& node : plan.nodes) all += text(node.op, ": ", node.path, '\n');
  return all;
}

TEST_CASE("a plan names the kernels of each node, and where cuBLASLt goes before them") {
  const std::string kernel = "product_4x8_bf16",
                    chain = "\nElementwise: chain_f32 (no NVRTC), a chain of 2 operators\n",
                    rest = "\nSoftmax: softmax_held\nReshape: \n";
  CHECK(paths(planned(layers(DType::kBF16), {{5, 16}}).plan) ==
        "Linear: cuBLASLt, else " + kernel + "; end_of_product" + chain + "Linear: cuBLASLt, else " + kernel +
            rest);
  CHECK(paths(planned(layers(DType::kBF16), {{5, 16}}, true).plan) ==
        "Linear: " + kernel + chain + "Linear: " + kernel + rest);
}

TEST_CASE("a plan counts steps, memory and costs as the program has them") {
  const auto [module, plan] = planned(layers(DType::kF32), {{6, 16}}, true);
  const std::vector<ir::Extents> shapes = {{6, 16}};
  const auto program = module->compile(shapes, NoLocksHeld());
  REQUIRE(program.ok());
  REQUIRE(plan.nodes.size() == module->graph().nodes.size());
  uint64_t steps = 0;
  for (size_t i = 0; i < plan.nodes.size(); ++i) {
    const plan::PlannedNode& node = plan.nodes[i];
    const bool runs = node.op != "Reshape";
    CHECK(node.op == module->graph().nodes[i].op->name);
    CHECK(node.step == (runs ? ++steps : 0));
    CHECK(node.cost.has_value() == runs);
  }
  CHECK(steps == static_cast<const CudaProgram&>(**program).lowered().steps.size());
  CHECK(plan.nodes[0].outputs == std::vector<ir::ConcreteType>{{DType::kF32, {6, 16}}});
  CHECK(plan.slot_bytes == (*program)->arena_bytes());
  CHECK(plan.arena_bytes <= plan.slot_bytes);
  CHECK(plan.arena_bytes_apart == 2 * 6 * 16 * sizeof(float));
}

TEST_CASE("a node that holds a graph has that graph's launches in its line, counted by kernel") {
  ir::Builder body;
  body.input("number", {DType::kI64, {}});
  const ir::ValueId goes_on = body.input("goes_on", {DType::kBool, {}});
  const ir::ValueId carried = body.input("carried", {DType::kF32, {4}});
  body.output(goes_on);
  body.output(*body.node("Softmax", {carried}));
  ir::Builder b;
  const ir::ValueId x = b.input("x", {DType::kF32, {4}});
  const ir::ValueId trips = b.constant(ir::Tensor::scalar(DType::kI64, ir::kMaxUnrolled + 1));
  const auto graph = std::make_shared<const ir::Graph>(*body.take());
  const ir::ValueId begins = b.constant(ir::Tensor::scalar(DType::kBool, 1));
  const auto made =
      b.nodes("Loop", {trips, begins, x}, 1, {{"body", graph}, {"carried", int64_t{1}}}, "loop");
  REQUIRE_MESSAGE(made.ok(), to_string(made.status()));
  b.output(*b.node("Neg", {(*made)[0]}));
  const auto plan = planned(*b.take(), {{4}}).plan;
  REQUIRE(plan.nodes.size() == 2);
  CHECK(plan.nodes[0].step == 1);
  CHECK_MESSAGE(plan.nodes[0].path.find(text(ir::kMaxUnrolled + 1, " x softmax_held")) != std::string::npos,
                plan.nodes[0].path);
  CHECK(plan.nodes[1].path == "chain_f32 (no NVRTC)");
  CHECK(plan.nodes[1].step == 2);
}

TEST_CASE("what has no elements does not run, and what cannot be compiled is refused in the same words") {
  for (const plan::PlannedNode& node : planned(layers(DType::kF32), {{0, 16}}).plan.nodes) {
    CHECK(node.step == 0);
    CHECK_FALSE(node.cost.has_value());
    if (node.op != "Reshape") CHECK(node.path == "nothing runs: there is nothing to compute");
  }
  const Planned wide = planned(layers(DType::kF32), {{1, 16}});
  const std::vector<ir::Extents> shapes = {{int64_t{1} << 20, 16}};
  const Status refused = wide.module->plan(shapes, 1 << 20, NoLocksHeld()).status();
  CHECK(refused.code() == heddle::Code::exhausted);
  CHECK(refused.message() == wide.module->compile(shapes, 1 << 20, NoLocksHeld()).status().message());
}

}  // namespace
}  // namespace heddle::cuda
