#include <doctest/doctest.h>

#include "ir/builder.h"
#include "ir/ops/cases.h"

namespace heddle::ir {

namespace {

struct Refusal {
  std::string op;
  std::vector<Sample> in;  // types, and values where they are fixed
  Attributes attributes;
  std::string message;  // a piece of it
};

ValueId add(Builder& b, const Sample& a) {
  if (a.absent) return kNoValue;
  if (!a.constant) return b.input("x", {a.dtype, a.shape});
  return b.constant(Tensor::of<double>(a.dtype, *TensorType{a.dtype, a.shape}.extents(), a.values));
}

std::vector<Refusal> shape_refusals() {
  const Sample x = f32({2, 3, 4}, {});
  const Sample words = i64({kB}, {});
  return {
      {"Softmax", {x}, {{"axis", i(5)}}, "node 'n' (Softmax): axis 5 is outside [-3, 2] of f32[2, 3, 4]"},
      {"Softmax", {x}, {{"axes", i(1)}}, "attribute 'axes' is not known; it takes axis"},
      {"Softmax", {x}, {{"axis", 1.0}}, "attribute 'axis' is a float; it has to be an int"},
      {"Concat", {x}, {}, "attribute 'axis' is missing"},
      {"Add", {x}, {}, "has 1 inputs; it takes 2"},
      {"Add", {x, none()}, {}, "input 1 is left out"},
      {"Add", {x, i64({4}, {})}, {}, "input 1 is i64[4] but input 0 is f32[2, 3, 4]"},
      {"Add", {x, f32({5}, {})}, {}, "do not broadcast: 4 against 5"},
      {"Exp", {words}, {}, "x is i64[b]; it has to be of f32, f16, bf16 or f64"},
      {"Cast", {x}, {{"to", std::string("int")}}, "attribute 'to' is 'int'"},
      {"Clip", {x, fixed(f32({2}, {1, 2}))}, {}, "min is f32[2]; its shape has to be [1]"},
      {"Gelu", {x}, {{"approximate", std::string("erf")}}, "has to be 'none' or 'tanh'"},
      {"Reshape", {x, numbers({5, 5})}, {}, "cannot reshape [2, 3, 4] to [5, 5]: 24 elements do not fit 25"},
      {"Reshape", {x, numbers({-1, -1})}, {}, "at most one element is -1"},
      {"Reshape", {x, numbers({-1, 5})}, {}, "24 elements are no multiple"},
      {"Reshape", {x, numbers({24, -2})}, {}, "only -1 may be negative"},
      {"Reshape", {x, numbers({2, 3, 4, 0})}, {}, "there is no axis 3 to copy"},
      {"Reshape", {x, words}, {}, "shape is i64[b] with data-dependent elements"},
      {"Squeeze", {x, numbers({0})}, {}, "axis 0 of f32[2, 3, 4] is squeezed"},
      {"Squeeze", {f32({kB, 1}, {})}, {}, "name the axes to drop"},
      {"Unsqueeze", {x, numbers({0, 0})}, {}, "axis 0 is given twice"},
      {"Expand", {x, numbers({2, 5, 4})}, {}, "do not broadcast: 3 against 5"},
      {"ConstantOfShape", {numbers({-2})}, {}, "its elements are 0 or more"},
      {"ConstantOfShape", {numbers({1e15})}, {}, "is too large"},
      {"ConstantOfShape", {numbers({4e9, 4e9, 4e9})}, {}, "is too large"},
      {"Range", {number(0), number(5), number(0)}, {}, "delta is 0"},
      {"Transpose", {x}, {{"perm", Ints{0, 1}}}, "it has to name each once"},
      {"Transpose", {x}, {{"perm", Ints{0, 1, 1}}}, "axis 1 is given twice"},
      {"Concat", {x, f32({2, 4, 4}, {})}, {{"axis", i(0)}}, "all axes except 0 have to be equal"},
      {"Split", {x, numbers({1, 2})}, {}, "it has to be 1 sizes with sum 2"},
      {"Slice", {x, numbers({0}), numbers({1}), numbers({0}), numbers({0})}, {}, "steps holds a 0"},
      {"Slice", {x, numbers({0}), numbers({1, 2})}, {}, "equally many"},
      {"Pad", {x, numbers({1, 1})}, {}, "pads has 2 elements; 3 axes of f32[2, 3, 4] take 6"},
      {"Pad", {x, numbers({2, 0, 0, 0, 0, 0})}, {{"mode", std::string("reflect")}}, "it takes at most 1"},
      {"Pad", {x, numbers({0, 0, 0, -9, 0, 0})}, {}, "is negative"},
  };
}

std::vector<Refusal> value_refusals() {
  const Sample x = f32({2, 3, 4}, {});
  const Sample words = i64({kB}, {});
  return {
      {"Gather", {x, f32({1}, {})}, {}, "indices is f32[1]; it has to be of i32 or i64"},
      {"GatherND", {x, i64({4}, {})}, {}, "its last extent has to be 1 to 3"},
      {"NonZero", {x}, {}, "unsupported: node 'n' (NonZero): its result has a data-dependent shape"},
      {"ReduceSum", {x, numbers({3})}, {}, "axis 3 is outside [-3, 2]"},
      {"ReduceMin", {{DType::kU64, {2, 3}, {}, {}}}, {}, "other than u64"},
      {"ReduceMax", {{DType::kU64, {2, 3}, {}, {}}}, {}, "other than u64"},
      {"ReduceSum", {x, words}, {}, "axes is data-dependent; it has to be constant"},
      {"TopK", {x, numbers({9})}, {}, "has 1 outputs; it takes 2"},
      {"MatMul", {x, x}, {}, "the inner extents differ: 4 of f32[2, 3, 4] against 3"},
      {"GroupedMatMul",
       {f32({2, 3}, {}), f32({5, 3, 4}, {}), i64({5}, {})},
       {{"trans_b", i(1)}},
       "the inner extents differ: 3 of f32[2, 3] against 4 of f32[5, 3, 4]"},
      {"GroupedMatMul", {f32({2, 3}, {}), f32({5, 3, 4}, {}), i64({4}, {})}, {}, "ends is i64[4]"},
      {"Gemm",
       {f32({2, 3}, {}), f32({3, 4}, {}), f32({5}, {})},
       {},
       "c is f32[5]; it has to broadcast to [2, 4]"},
      {"Linear",
       {x, f32({4, 5}, {})},
       {{"activation", std::string("swish")}},
       "attribute 'activation' is 'swish'"},
      {"Linear", {x, f32({4, 5}, {}), f32({4}, {})}, {}, "bias is f32[4]; its shape has to be [5]"},
      {"Conv", {x, f32({6, 2, 2}, {})}, {}, "with 3 channels"},
      {"Conv", {x, f32({6, 3, 9}, {})}, {}, "the window spans 9"},
      {"Conv", {x, f32({6, 3, 2}, {})}, {{"strides", Ints{0}}}, "attribute 'strides' holds 0"},
      {"MaxPool", {x}, {{"kernel_shape", Ints{2}}, {"pads", Ints{2, 0}}}, "padding has to be smaller"},
      {"Col2Im", {f32({1, 2, 2}, {}), numbers({3}), numbers({2})}, {{"pads", Ints{-1, 1}}}, "are -1 and 1"},
      {"Col2Im",
       {f32({1, 3, 1}, {}), numbers({1}), numbers({3})},
       {{"dilations", Ints{int64_t{1} << 62}}, {"pads", Ints{int64_t{1} << 62, int64_t{1} << 62}}},
       "they have to be 0 to 1073741824"},
      {"RoiAlign",
       {f32({1, 1, 2, 2}, {}), f32({1, 4}, {}), i64({1}, {})},
       {{"sampling_ratio", i(int64_t{1} << 40)}},
       "it has to be at most 4096"},
      {"BatchNormalization",
       {x, f32({4}, {}), f32({3}, {}), f32({3}, {}), f32({3}, {})},
       {},
       "scale is f32[4]"},
      {"GroupNormalization",
       {x, f32({3}, {}), f32({3}, {})},
       {{"num_groups", i(2)}},
       "has to divide the 3 channels"},
      {"LayerNormalization", {x, f32({3}, {})}, {}, "scale is f32[3]; it has to broadcast to [4]"},
      {"Attention", {x, x, x}, {{"num_heads", i(3)}}, "its last axis has to be a multiple of 3 heads"},
      {"Attention", {x}, {{"num_heads", i(2)}}, "k or v is left out"},
      {"Identity", {f32({1, 1, 1, 1, 1, 1, 1, 1, 1}, {})}, {}, "has rank 9; tensors have at most 8"},
  };
}

}  // namespace

TEST_CASE("a mistake is refused at its node, saying what would be right") {
  std::vector<Refusal> all = shape_refusals();
  for (Refusal& r : value_refusals()) all.push_back(std::move(r));
  for (const Refusal& r : all) {
    CAPTURE(r.op);
    CAPTURE(r.message);
    Builder b;
    std::vector<ValueId> in;
    for (const Sample& a : r.in) in.push_back(add(b, a));
    const size_t values = b.graph().values.size();
    const Result<ValueId> made = b.node(r.op, in, r.attributes, "n");
    REQUIRE(!made.ok());
    CHECK_MESSAGE(to_string(made.status()).find(r.message) != std::string::npos, to_string(made.status()));
    CHECK(b.graph().values.size() == values);
    CHECK(b.graph().nodes.empty());
  }
}

TEST_CASE("an index out of range is reported by the reference") {
  Builder b;
  const ValueId x = b.input("x", {DType::kF32, {3}});
  const ValueId at = b.input("at", {DType::kI64, {1}});
  b.output(b.node("Gather", {x, at}, {}, "pick").value());
  const Graph graph = b.take().value();
  for (const int64_t index : {-4, 3}) {
    const Tensor in[] = {Tensor::zeros(DType::kF32, {3}), Tensor::of_i64({index})};
    const Result<std::vector<Tensor>> out = evaluate(graph, in);
    REQUIRE(!out.ok());
    CHECK(out.status().message().find("node 'pick' (Gather): index") == 0);
    CHECK(out.status().message().find("is outside [-3, 2]") != std::string::npos);
  }
}

TEST_CASE("a shape that only data decides keeps its rank") {
  Builder b;
  const ValueId x = b.input("x", {DType::kF32, {kB, 6}});
  const ValueId shape = b.input("shape", {DType::kI64, {3}});
  const ValueId y = b.node("Reshape", {x, shape}).value();
  CHECK(b.value(y).type.rank() == 3);
  CHECK(!b.value(y).type.is_static());
}

}  // namespace heddle::ir
