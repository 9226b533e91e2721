#include "plan/prepare.h"

#include "plan/sketch.h"

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

TEST_CASE("a weight that several nodes read is counted once") {
  Sketch s;
  const auto x = s.in("x", {sym("batch"), 8});
  const auto weight = s.random({8, 8});
  s.out(s.op("MatMul", {s.op("Tanh", {s.op("MatMul", {x, weight})}), weight}));
  CHECK(prepare(s.take())->weight_bytes == 8 * 8 * sizeof(float));
}

}  // namespace heddle::plan
