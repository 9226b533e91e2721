// operators_test.cpp: the operators that were not safe under threads in the predecessor's world.
#include "harness_fixture.h"

namespace stress {
namespace {

// A model of one operator with its inputs and the reference interpreter's values.
Case one_operator(const std::string& op, const std::vector<heddle::Shape>& shapes,
                  const heddle::AttributeList& attributes = {},
                  const std::vector<int64_t>& transpose_last = {}) {
  heddle::GraphBuilder graph(op);
  std::vector<heddle::GraphBuilder::Value> values;
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < shapes.size(); ++i) {
    std::vector<heddle::GraphBuilder::DimArgument> dims;
    for (const int64_t extent : shapes[i]) dims.emplace_back(extent);
    values.push_back(graph.input("x" + std::to_string(i), heddle::DType::f32, dims));
    inputs.push_back(random_tensor(shapes[i], static_cast<uint32_t>(i + 1)));
  }
  if (!transpose_last.empty())
    values.back() = graph.add("Transpose", {values.back()}, {{"perm", transpose_last}});
  graph.output(graph.add(op, values, attributes), "y");
  std::vector<std::vector<Tensor>> expected = {graph.evaluate(inputs)};
  return Case{op, graph.build(), {inputs}, std::move(expected)};
}

int right_calls(const Case& c, int threads, int calls) {
  std::atomic<int> right = 0;
  const auto errors = run_threads(threads, [&](int) {
    for (int i = 0; i < calls; ++i) right += c.call(0) ? 1 : 0;
  });
  for (const std::string& error : errors) FAIL_CHECK(error);
  return right;
}

}  // namespace

TEST_CASE("strided and batched matrix products from four threads have the reference's values") {
  const int64_t batch = narrower(32);
  for (const Case& c : {one_operator("MatMul", {{batch, 64, 128}, {batch, 128, 64}}),
                        one_operator("MatMul", {{batch, 64, 128}, {batch, 64, 128}}, {}, {0, 2, 1}),
                        one_operator("MatMul", {{64, 64}, {64, 64}})}) {
    CHECK(right_calls(c, 4, 20) == 80);
  }
}

TEST_CASE("softmax, GELU, ReLU and layer norm give one thread's values on every thread") {
  const heddle::Shape x = {4, narrower(128), 768};
  for (const Case& c :
       {one_operator("Softmax", {x}, {{"axis", int64_t{-1}}}), one_operator("Gelu", {x}),
        one_operator("Relu", {x}),
        one_operator("LayerNormalization", {x, {768}, {768}}, {{"axis", int64_t{-1}}, {"epsilon", 1e-5}})}) {
    CHECK_MESSAGE(right_calls(c, 1, 1) == 1, c.name);
    CHECK_MESSAGE(right_calls(c, 4, 5) == 20, c.name);
  }
}

}  // namespace stress
