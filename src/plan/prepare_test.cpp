#include "plan/prepare.h"

#include "plan/sketch_fixture.h"

namespace heddle::plan {

TEST_CASE("a prepared model has the graph's ports, its rows marked, and the bytes of its weights") {
  Sketch s;
  const auto x = s.in("x", {sym("batch"), 8});
  const auto y = s.op("MatMul", {x, s.random({8, 4})});
  s.out(s.op("Tanh", {s.op("Tanh", {y})}), "result");
  const Prepared prepared = *prepare(s.take());
  REQUIRE(prepared.inputs.size() == 1);
  CHECK(prepared.inputs[0].name == "x");
  CHECK(to_string(prepared.inputs[0].type) == "f32[batch, 8]");
  REQUIRE(prepared.outputs.size() == 1);
  CHECK(prepared.outputs[0].name == "result");
  CHECK(to_string(prepared.outputs[0].type) == "f32[batch, 4]");
  CHECK(prepared.weight_bytes == 8 * 4 * sizeof(float));
  CHECK(prepared.graph->values[prepared.graph->outputs[0]].row_axis == 0);
}

TEST_CASE("a weight that both branches hold is counted once") {
  const ir::Tensor weight = ir::Tensor::zeros(ir::DType::kF32, {8, 8});
  const auto branch = [&](std::string_view op) {
    Sketch s;
    s.out(s.op(op, {s.op("MatMul", {s.in("x", {sym("batch"), 8}), s.constant(weight)})}));
    return std::make_shared<const ir::Graph>(s.take());
  };
  Sketch s;
  const auto x = s.in("x", {sym("batch"), 8});
  const auto flag = s.in("flag", {}, ir::DType::kBool);
  s.out(s.op("If", {flag, x}, {{"then_branch", branch("Tanh")}, {"else_branch", branch("Abs")}}));
  CHECK(prepare(s.take())->weight_bytes == 8 * 8 * sizeof(float));
}

}  // namespace heddle::plan
