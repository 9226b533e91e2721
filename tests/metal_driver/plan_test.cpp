// What a module says that it would do, and precision f16.
#include <algorithm>
#include <cmath>

#include "device/plain_source_fixture.h"
#include "metal_driver_fixture.h"

namespace heddle::metal::test {
namespace {

// y = Softmax(x W), both with a batch.
Ref<const device::Module> scores(device::Device& device, const std::string& precision = "f32") {
  ir::Builder b;
  const ir::ValueId x = b.input("x", {DType::kF32, {ir::Dim::symbol("batch"), 32}});
  const ir::ValueId w = b.constant(conformance::random_tensor(DType::kF32, {32, 16}, 1, -0.5, 0.5));
  b.output(*b.node("Softmax", {*b.node("MatMul", {x, w}, {}, "product")}, {}, "shares"));
  const auto module = device.load(*b.take(), {precision}, device::plain_source(device), NoLocksHeld());
  REQUIRE_MESSAGE(module.ok(), to_string(module.status()));
  return *module;
}

plan::ProgramPlan plan_of(const device::Module& module, int64_t batch) {
  const std::vector<Extents> shapes = {{batch, 32}};
  const auto plan = module.plan(shapes, UINT64_MAX, NoLocksHeld());
  REQUIRE_MESSAGE(plan.ok(), to_string(plan.status()));
  return *plan;
}

bool says(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

TEST_CASE("a plan names each node's path and the reason for it, and what lies between the nodes") {
  const Machine machine;
  const auto device = open();
  const auto module = scores(*device);
  const plan::ProgramPlan plan = plan_of(*module, 8);
  REQUIRE(plan.nodes.size() == module->graph().nodes.size());
  for (size_t i = 0; i < plan.nodes.size(); ++i) {
    const plan::PlannedNode& node = plan.nodes[i];
    CHECK(node.op == module->graph().nodes[i].op->name);
    CHECK(node.step == i + 1);
    CHECK(node.cost.has_value());
    CHECK_MESSAGE(says(node.path, "MPSGraph"), node.path);
  }
  REQUIRE(plan.nodes.size() == 2);
  CHECK_MESSAGE(says(plan.nodes[0].path, "wrong from 3 threads on"), plan.nodes[0].path);
  CHECK_FALSE(says(plan.nodes[0].path, "f16"));
  CHECK(plan.nodes[0].outputs[0] == ir::ConcreteType{DType::kF32, {8, 16}});
  CHECK(plan.arena_bytes_apart == 8 * 16 * 4);  // the product's; the shares are the caller's
  CHECK_FALSE(plan.arena_bytes.has_value());
  CHECK_FALSE(plan.slot_bytes.has_value());
}

TEST_CASE("a plan tells what is left out, and is refused in the words of the compilation") {
  const Machine machine;
  const auto device = open();
  for (const plan::PlannedNode& node : plan_of(*scores(*device), 0).nodes) {
    CHECK(node.step == 0);
    CHECK_FALSE(node.cost.has_value());
    CHECK_MESSAGE(says(node.path, "left out"), node.path);
  }
  ir::Builder b;
  b.output(*b.node("Neg", {b.input("x", {DType::kF64, {4}})}, {}, "wide"));
  const auto module = device->load(*b.take(), {}, device::plain_source(*device), NoLocksHeld());
  REQUIRE_MESSAGE(module.ok(), to_string(module.status()));
  const std::vector<Extents> shapes = {{4}};
  const Status planned = (*module)->plan(shapes, UINT64_MAX, NoLocksHeld()).status();
  CHECK(planned.code() == Code::unsupported);
  CHECK(planned.message() == (*module)->compile(shapes, NoLocksHeld()).status().message());
}

TEST_CASE("precision f16 rounds the operands of products, and the plan says so") {
  const Machine machine;
  const auto device = open();
  const std::vector<ir::Tensor> inputs = {conformance::random_tensor(DType::kF32, {8, 32}, 3)};
  const auto run = [&](const std::string& precision) {
    const auto program = conformance::compile(*scores(*device, precision), inputs);
    REQUIRE_MESSAGE(program.ok(), to_string(program.status()));
    Session session(*device);
    const auto got = session.run(*program, inputs);
    REQUIRE_MESSAGE(got.ok(), to_string(got.status()));
    return (*got)[0];
  };
  const auto wanted = *ir::evaluate(scores(*device)->graph(), inputs);
  const ir::Tensor wide = run("f32"), half = run("f16");
  CHECK(conformance::difference(wide, wanted[0], {1e-5, 1e-6}).empty());
  CHECK(conformance::difference(half, wanted[0], {2e-2, 1e-3}).empty());
  CHECK_FALSE(conformance::difference(half, wanted[0], {1e-5, 1e-6}).empty());
  const plan::ProgramPlan plan = plan_of(*scores(*device, "f16"), 8);
  CHECK_MESSAGE(says(plan.nodes[0].path, "operands in f16"), plan.nodes[0].path);
  CHECK_FALSE(device
                  ->load(
                      *[] {
                        ir::Builder b;
                        b.output(b.input("x", {DType::kF32, {1}}));
                        return b.take();
                      }(),
                      {"bf16"}, device::plain_source(*device), NoLocksHeld())
                  .ok());
}

}  // namespace
}  // namespace heddle::metal::test
