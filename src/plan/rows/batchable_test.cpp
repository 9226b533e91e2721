#include "plan/rows/batchable.h"

#include <cstring>
#include <functional>
#include <set>

#include "plan/passes/optimize.h"
#include "plan/rows/row_rules.h"
#include "plan/sketch_fixture.h"

namespace heddle::plan {
namespace {

using Id = Sketch::Id;
using ir::DType;

ir::Tensor join(const std::vector<ir::Tensor>& parts) {
  ir::Extents extents = parts[0].extents();
  extents[0] = 0;
  for (const ir::Tensor& part : parts) extents[0] += part.extents()[0];
  ir::Tensor out = ir::Tensor::zeros(parts[0].dtype(), extents);
  auto* to = static_cast<std::byte*>(out.mutable_data());
  for (const ir::Tensor& part : parts) {
    if (part.bytes() > 0) std::memcpy(to, part.data(), static_cast<size_t>(part.bytes()));
    to += part.bytes();
  }
  return out;
}

// evaluate(joined rows) == joined evaluate(rows), for callers that bring 1, 2 and 3 rows.
void check_joined(const ir::Graph& graph) {
  std::vector<std::vector<ir::Tensor>> calls;
  for (int64_t rows : {1, 2, 3}) {
    calls.push_back(random_inputs(graph, {{"batch", rows}, {"seq", 5}}, static_cast<unsigned>(rows)));
  }
  std::vector<ir::Tensor> together;
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    together.push_back(join({calls[0][i], calls[1][i], calls[2][i]}));
  std::vector<std::vector<ir::Tensor>> alone;
  for (const auto& call : calls) alone.push_back(run(graph, call));
  std::vector<ir::Tensor> expected;
  for (size_t o = 0; o < graph.outputs.size(); ++o)
    expected.push_back(join({alone[0][o], alone[1][o], alone[2][o]}));
  check_equal(expected, run(graph, together), 1e-6);
}

struct Case {
  std::string what;
  std::function<Id(Sketch&, Id)> build;  // of x[batch, 6, 8]
  std::string reason;                    // part of it; empty: batchable
};

Id axis_input(Sketch& s, int64_t axis) { return s.ints({axis}); }
Id rows_of(Sketch& s, Id x) { return s.op("Gather", {s.op("Shape", {x}), s.ints({0})}); }
ir::Attributes at(int64_t axis) { return {{"axis", axis}}; }

std::vector<Case> product_and_shape_cases() {
  return {
      {"element-wise", [](Sketch& s, Id x) { return s.op("Mul", {s.op("Exp", {x}), s.random({6, 1})}); }, ""},
      {"a slope for each channel",
       [](Sketch& s, Id x) { return s.op("PRelu", {s.op("Exp", {x}), s.random({6, 1})}); }, ""},
      {"a slope for each row, of one x",
       [](Sketch& s, Id x) { return s.op("PRelu", {s.random({1, 6, 8}), x}); },
       "takes a slope or a bound for each row"},
      {"a bound for each row",
       [](Sketch& s, Id x) {
         const Id all = s.op("ReduceMax", {x, s.ints({1, 2})}, {{"keepdims", int64_t{0}}});
         return s.op("Clip", {all, s.op("Neg", {all})});
       },
       "takes a slope or a bound for each row"},
      {"against another row of itself",
       [](Sketch& s, Id x) { return s.op("Add", {x, s.op("Gather", {x, s.ints({0})})}); },
       "takes a part of axis 0"},
      {"against a table of rows", [](Sketch& s, Id x) { return s.op("Add", {x, s.random({4, 1, 8})}); },
       "differ"},
      {"times weights", [](Sketch& s, Id x) { return s.op("MatMul", {x, s.random({8, 3})}); }, ""},
      {"weights times", [](Sketch& s, Id x) { return s.op("MatMul", {s.random({3, 6}), x}); }, ""},
      {"with itself transposed",
       [](Sketch& s, Id x) { return s.op("MatMul", {x, s.transpose(x, {0, 2, 1})}); }, ""},
      {"rows with rows",
       [](Sketch& s, Id x) {
         const Id flat = s.op("Flatten", {x});
         return s.op("MatMul", {flat, s.transpose(flat, {1, 0})});
       },
       "multiplies rows with rows"},
      {"times a vector", [](Sketch& s, Id x) { return s.op("MatMul", {x, s.random({8})}); }, ""},
      {"a vector times", [](Sketch& s, Id x) { return s.op("MatMul", {s.random({6}), x}); }, ""},
      {"summed over rows by a product",
       [](Sketch& s, Id x) {
         const Id columns = s.transpose(s.op("Flatten", {x}), {1, 0});
         return s.op("MatMul", {columns, s.op("ConstantOfShape",
                                              {s.op("Concat", {rows_of(s, x), s.ints({2})}, at(0))})});
       },
       "sums over axis 1"},
      {"flattened",
       [](Sketch& s, Id x) { return s.op("Gemm", {s.op("Flatten", {x}), s.random({48, 3}), s.random({3})}); },
       ""},
      {"regrouped below the rows", [](Sketch& s, Id x) { return s.reshape(x, {-1, 4, 12}); }, ""},
      {"rows with what follows them on one axis",
       [](Sketch& s, Id x) { return s.op("Softmax", {s.reshape(x, {-1, 8})}, at(1)); }, ""},
      {"there and back",
       [](Sketch& s, Id x) {
         const Id flat = s.op("MatMul", {s.reshape(x, {-1, 8}), s.random({8, 4})});
         return s.op("ReduceMean", {s.reshape(flat, {-1, 6, 4}), axis_input(s, 1)});
       },
       ""},
      {"regrouped across rows", [](Sketch& s, Id x) { return s.reshape(x, {2, -1, 8}); }, "across rows"},
      {"rows moved and brought back",
       [](Sketch& s, Id x) { return s.transpose(s.op("Relu", {s.transpose(x, {1, 0, 2})}), {1, 0, 2}); }, ""},
      {"rows moved", [](Sketch& s, Id x) { return s.transpose(x, {1, 0, 2}); }, "rows along axis 1"},
      {"rows moved behind others and joined with them",
       [](Sketch& s, Id x) { return s.reshape(s.transpose(x, {1, 0, 2}), {-1, 8}); }, "between the rows"},
      {"mean over rows",
       [](Sketch& s, Id x) { return s.op("Sub", {x, s.op("ReduceMean", {x, axis_input(s, 0)})}); },
       "reduces over axis 0"},
      {"mean over all", [](Sketch& s, Id x) { return s.op("Sub", {x, s.op("ReduceMean", {x})}); },
       "reduces over axis 0"},
      {"mean over others, axes dropped",
       [](Sketch& s, Id x) { return s.op("ReduceMean", {x, s.ints({1, -1})}, {{"keepdims", int64_t{0}}}); },
       ""},
  };
}

std::vector<Case> normalising_and_joining_cases() {
  return {
      {"softmax over rows", [](Sketch& s, Id x) { return s.op("Softmax", {x}, at(0)); },
       "normalises over axis 0"},
      {"layer norm",
       [](Sketch& s, Id x) { return s.op("LayerNormalization", {x, s.random({8}), s.random({8})}); }, ""},
      {"layer norm over all",
       [](Sketch& s, Id x) { return s.op("LayerNormalization", {x, s.random({1})}, at(0)); }, "normalises"},
      {"batch norm",
       [](Sketch& s, Id x) {
         return s.op("BatchNormalization",
                     {x, s.random({6}), s.random({6}), s.random({6}), s.random({6}, 1, 2)});
       },
       ""},
      {"convolution", [](Sketch& s, Id x) { return s.op("Conv", {x, s.random({4, 6, 3}), s.random({4})}); },
       ""},
      {"convolution across rows",
       [](Sketch& s, Id x) {
         return s.op("Conv", {s.transpose(x, {1, 0, 2}),
                              s.op("ConstantOfShape",
                                   {s.op("Concat", {s.ints({4}), rows_of(s, x), s.ints({3})}, at(0))})});
       },
       "not fixed"},
      {"pooling",
       [](Sketch& s, Id x) { return s.op("MaxPool", {x}, {{"kernel_shape", std::vector<int64_t>{2}}}); }, ""},
      {"joined beside", [](Sketch& s, Id x) { return s.op("Concat", {x, s.op("Neg", {x})}, at(2)); }, ""},
      {"joined along the rows", [](Sketch& s, Id x) { return s.op("Concat", {x, x}, at(0)); },
       "joins along axis 0"},
      {"joined with a token repeated for every row",
       [](Sketch& s, Id x) {
         const Id shape = s.op("Concat", {rows_of(s, x), s.ints({1, 8})}, at(0));
         return s.op("Concat", {s.op("Expand", {s.random({1, 1, 8}), shape}), x}, at(1));
       },
       ""},
      {"split",
       [](Sketch& s, Id x) {
         return s.ops("Split", {x}, 2, {{"axis", int64_t{1}}, {"num_outputs", int64_t{2}}})[1];
       },
       ""},
      {"sliced", [](Sketch& s, Id x) { return s.op("Slice", {x, s.ints({1}), s.ints({5}), s.ints({1})}); },
       ""},
      {"first row taken",
       [](Sketch& s, Id x) { return s.op("Slice", {x, s.ints({0}), s.ints({1}), s.ints({0})}); },
       "takes a part of axis 0"},
      {"rows reversed",
       [](Sketch& s, Id x) {
         return s.op("Slice", {x, s.ints({-1}), s.ints({INT64_MIN}), s.ints({0}), s.ints({-1})});
       },
       "takes a part of axis 0"},
  };
}

std::vector<Case> moving_and_counting_cases() {
  return {
      {"rows shifted",
       [](Sketch& s, Id x) {
         return s.op("Pad", {s.op("Slice", {x, s.ints({1}), s.ints({INT64_MAX}), s.ints({0})}),
                             s.ints({1, 0, 0, 0, 0, 0})});
       },
       "axis 0"},
      {"one position picked",
       [](Sketch& s, Id x) {
         return s.op("Gather", {x, s.constant(ir::Tensor::scalar(DType::kI64, 0))}, at(1));
       },
       ""},
      {"padded beside", [](Sketch& s, Id x) { return s.op("Pad", {x, s.ints({0, 1, 0, 0, 0, 2})}); }, ""},
      {"padded rows", [](Sketch& s, Id x) { return s.op("Pad", {x, s.ints({1, 0, 0, 0, 0, 0})}); },
       "pads axis 0"},
      {"cumulated beside",
       [](Sketch& s, Id x) { return s.op("CumSum", {x, s.constant(ir::Tensor::scalar(DType::kI64, 1))}); },
       ""},
      {"cumulated over rows",
       [](Sketch& s, Id x) { return s.op("CumSum", {x, s.constant(ir::Tensor::scalar(DType::kI64, 0))}); },
       "axis 0"},
      {"best of", [](Sketch& s, Id x) { return s.ops("TopK", {x, s.ints({2})}, 2, at(1))[0]; }, ""},
      {"index of the greatest",
       [](Sketch& s, Id x) { return s.op("ArgMax", {x}, {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}}); },
       ""},
      {"triangle", [](Sketch& s, Id x) { return s.op("Trilu", {x}); }, ""},
      {"triangle across rows", [](Sketch& s, Id x) { return s.op("Trilu", {s.op("Flatten", {x})}); },
       "across rows"},
      {"repeated beside", [](Sketch& s, Id x) { return s.op("Tile", {x, s.ints({1, 2, 1})}); }, ""},
      {"repeated rows", [](Sketch& s, Id x) { return s.op("Tile", {x, s.ints({2, 1, 1})}); },
       "repeat axis 0"},
      {"expanded",
       [](Sketch& s, Id x) {
         return s.op("Expand", {s.op("Unsqueeze", {x, s.ints({1})}), s.ints({1, 3, 1, 1})});
       },
       ""},
  };
}

std::vector<Case> neural_cases() {
  return {
      {"attention",
       [](Sketch& s, Id x) {
         return s.op("Attention", {x, x, x, s.random({6, 6})}, {{"num_heads", int64_t{2}}});
       },
       ""},
      {"recurrent along the rest",
       [](Sketch& s, Id x) {
         const Id sequence = s.transpose(x, {1, 0, 2});
         const Id all = s.ops("LSTM", {sequence, s.random({1, 20, 8}), s.random({1, 20, 5})}, 3)[0];
         return s.transpose(s.op("Squeeze", {all, s.ints({1})}), {1, 0, 2});
       },
       ""},
      {"last state of a recurrent node",
       [](Sketch& s, Id x) {
         const Id sequence = s.transpose(x, {1, 0, 2});
         const Id last = s.ops("GRU", {sequence, s.random({1, 15, 8}), s.random({1, 15, 5})}, 2)[1];
         return s.op("Squeeze", {last, s.ints({0, 1})});
       },
       ""},
      {"recurrent over the rows",
       [](Sketch& s, Id x) { return s.ops("RNN", {x, s.random({1, 5, 8}), s.random({1, 5, 5})}, 2)[0]; },
       "along axis 1"},
      {"transposed convolution",
       [](Sketch& s, Id x) { return s.op("ConvTranspose", {x, s.random({6, 4, 2})}); }, ""},
      {"pooled with indices",
       [](Sketch& s, Id x) {
         return s.ops("MaxPool", {x}, 2, {{"kernel_shape", std::vector<int64_t>{2}}})[0];
       },
       "count through all examples"},
      {"integer product",
       [](Sketch& s, Id x) {
         const Id bytes = s.op("Cast", {x}, {{"to", std::string("i8")}});
         return s.op("MatMulInteger", {bytes, s.constant(ir::Tensor::zeros(DType::kI8, {8, 3}))});
       },
       ""},
      {"products of groups",
       [](Sketch& s, Id x) {
         const Id rows = s.op("ReduceMax", {x, s.ints({1})}, {{"keepdims", int64_t{0}}});
         return s.op("GroupedMatMul", {rows, s.random({2, 8, 3}), s.ints({1, 3})});
       },
       "by its place among all rows"},
      {"linear with residual",
       [](Sketch& s, Id x) { return s.op("Linear", {x, s.random({8, 8}), ir::kNoValue, x}); }, ""},
      {"number of rows as data",
       [](Sketch& s, Id x) {
         return s.op("Div", {x, s.op("Cast", {rows_of(s, x)}, {{"to", std::string("f32")}})});
       },
       "depends on the number of rows"},
  };
}

std::vector<Case> data_cases() {
  return {
      {"row numbers as data",
       [](Sketch& s, Id x) {
         const Id count = s.op("Squeeze", {rows_of(s, x)});
         const Id range = s.op("Range", {s.constant(ir::Tensor::scalar(DType::kI64, 0)), count,
                                         s.constant(ir::Tensor::scalar(DType::kI64, 1))});
         const Id column =
             s.op("Unsqueeze", {s.op("Cast", {range}, {{"to", std::string("f32")}}), s.ints({1, 2})});
         return s.op("Add", {x, column});
       },
       "depends on the number of rows"},
      {"only the shape", [](Sketch& s, Id x) { return s.op("Shape", {x}); }, "has no rows"},
      {"a constant", [](Sketch& s, Id) { return s.op("Exp", {s.random({3})}); }, "has no rows"},
      {"chosen by data",
       [](Sketch& s, Id x) {
         return s.op("Where", {s.op("Less", {x, s.number(0)}), x, s.op("Softmax", {x}, at(2))});
       },
       ""},
  };
}

std::vector<Case> placement_cases() {
  return {
      {"product cumulated beside",
       [](Sketch& s, Id x) { return s.op("CumProd", {x, s.constant(ir::Tensor::scalar(DType::kI64, 1))}); },
       ""},
      {"resized beside",
       [](Sketch& s, Id x) {
         return s.op("Resize",
                     {x, ir::kNoValue, ir::kNoValue, s.op("Concat", {rows_of(s, x), s.ints({3, 12})}, at(0))},
                     {{"mode", std::string("linear")}});
       },
       ""},
      {"resized rows",
       [](Sketch& s, Id x) {
         return s.op("Resize",
                     {x, ir::kNoValue,
                      s.constant(ir::Tensor::of<double>(DType::kF32, {3}, std::vector<double>{2, 1, 1}))});
       },
       "resizes axis 0"},
      {"scattered beside",
       [](Sketch& s, Id x) {
         const Id order = s.ops("TopK", {x, s.ints({2})}, 2, at(1))[1];
         return s.op("ScatterElements", {x, order, s.op("GatherElements", {x, order}, at(2))}, at(1));
       },
       ""},
      {"scattered over rows",
       [](Sketch& s, Id x) {
         const Id order = s.op("ArgMax", {x}, at(2));
         return s.op("ScatterElements", {x, order, s.op("GatherElements", {x, order}, at(1))}, at(0));
       },
       "writes along axis 0"},
      {"bits", [](Sketch& s, Id x) { return s.op("BitCast", {x}, {{"to", std::string("i32")}}); }, ""},
      {"determinants",
       [](Sketch& s, Id x) {
         return s.op(
             "Det", {s.op("MatMul", {x, s.op("Transpose", {x}, {{"perm", std::vector<int64_t>{0, 2, 1}}})})});
       },
       ""},
  };
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& family : {product_and_shape_cases(), normalising_and_joining_cases(),
                             moving_and_counting_cases(), neural_cases(), placement_cases(), data_cases()}) {
    all.insert(all.end(), family.begin(), family.end());
  }
  return all;
}

TEST_CASE("the proof says yes and no where it should, with the node and why") {
  for (const Case& each : cases()) {
    CAPTURE(each.what);
    Sketch s;
    s.out(each.build(s, s.in("x", {sym("batch"), 6, 8})));
    const Batchable answer = batchable(s.take());
    CAPTURE(answer.reason);
    CHECK(answer.yes == each.reason.empty());
    CHECK(answer.reason.find(each.reason) != std::string::npos);
    CHECK(answer.reason.empty() == answer.yes);
  }
}

TEST_CASE("what is proven holds: joined calls give what single calls give, before and after optimisation") {
  int proven = 0;
  for (const Case& each : cases()) {
    CAPTURE(each.what);
    Sketch s;
    s.out(each.build(s, s.in("x", {sym("batch"), 6, 8})));
    const ir::Graph graph = s.take();
    if (!batchable(graph).yes) continue;
    check_joined(graph);
    const auto optimized = optimize(graph);
    REQUIRE(optimized.ok());
    CHECK(batchable(*optimized).yes);
    check_joined(*optimized);
    ++proven;
  }
  CHECK(proven > 25);
}

// The elements of one row of a value whose rows lie along `axis`.
std::vector<double> elements_of(const ir::Tensor& t, size_t axis, int64_t row, int64_t rows) {
  int64_t inner = 1;
  for (size_t i = axis + 1; i < t.extents().rank(); ++i) inner *= t.extents()[i];
  const int64_t extent = t.extents()[axis];
  REQUIRE(extent % rows == 0);
  std::vector<double> out;
  for (int64_t i = 0; i < t.elements(); ++i) {
    if (i / inner % extent / (extent / rows) == row) out.push_back(t.get(i));
  }
  return out;
}

TEST_CASE("rows are marked where they are: one row's input changes its elements of marked values only") {
  constexpr int64_t kRows = 3, kChanged = 1;
  int changed = 0;
  for (const Case& each : cases()) {
    CAPTURE(each.what);
    Sketch s;
    s.out(each.build(s, s.in("x", {sym("batch"), 6, 8})));
    ir::Graph graph = mark_rows(s.take());
    std::vector<ir::ValueId> marked;
    for (ir::ValueId id = 0; id < graph.values.size(); ++id) {
      if (graph.values[id].row_axis) marked.push_back(id);
    }
    CHECK(marked.empty() == !each.reason.empty());
    if (marked.empty()) continue;
    graph.outputs = marked;
    const ir::Tensor x = random_inputs(graph, {{"batch", kRows}}, 5)[0];
    ir::Tensor other = random_inputs(graph, {{"batch", kRows}}, 6)[0];
    for (int64_t i = 0; i < x.elements(); ++i) {
      if (i / (x.elements() / kRows) != kChanged) other.set(i, x.get(i));
    }
    const auto before = run(graph, {x}), after = run(graph, {other});
    for (size_t o = 0; o < marked.size(); ++o) {
      const size_t axis = *graph.values[marked[o]].row_axis;
      for (int64_t row = 0; row < kRows; ++row) {
        const bool same = elements_of(before[o], axis, row, kRows) == elements_of(after[o], axis, row, kRows);
        CHECK((same || row == kChanged));
        changed += same ? 0 : 1;
      }
    }
  }
  CHECK(changed > 50);
}

TEST_CASE("embeddings with positions and a mask over a symbolic length are batchable") {
  Sketch s;
  const Id ids = s.in("ids", {sym("batch"), sym("seq")}, DType::kI64);
  const Id mask = s.in("mask", {sym("batch"), sym("seq")}, DType::kI64);
  const Id length = s.op("Gather", {s.op("Shape", {ids}), s.ints({1})});
  const Id places = s.op("Slice", {s.random({1, 16, 8}), s.ints({0}), length, s.ints({1})});
  const Id x = s.op("Add", {s.op("Gather", {s.random({4, 8}), ids}), places});
  const Id seen = s.op("Cast", {s.op("Unsqueeze", {mask, s.ints({1, 2})})}, {{"to", std::string("bool")}});
  s.out(s.op("Attention", {x, x, x, seen}, {{"num_heads", int64_t{2}}}));
  const ir::Graph graph = s.take();
  const Batchable answer = batchable(graph);
  CAPTURE(answer.reason);
  CHECK(answer.yes);
  check_joined(graph);
}

TEST_CASE("inputs without a common symbolic axis 0 are refused by name") {
  struct Inputs {
    std::vector<ir::Shape> shapes;
    std::string reason;
  };
  const Inputs table[] = {
      {{{sym("batch"), 4}, {sym("rows"), 4}}, "input 'b'"},
      {{{sym("batch"), 4}, {4, 4}}, "axis 0 is fixed"},
      {{{sym("batch"), 4}, {}}, "no axis 0"},
      {{{sym("batch") * 2, 4}}, "symbol of its own"},
      {{{sym("batch"), sym("batch")}}, "axis 1 grows"},
  };
  for (const Inputs& each : table) {
    Sketch s;
    const char* names[] = {"a", "b"};
    for (size_t i = 0; i < each.shapes.size(); ++i) {
      s.out(s.op("Relu", {s.in(names[i], each.shapes[i])}), std::string("out_") + names[i]);
    }
    const Batchable answer = batchable(s.take());
    CHECK_FALSE(answer.yes);
    CHECK(answer.reason.find(each.reason) != std::string::npos);
  }
}

TEST_CASE("every operator has a rule, makes no rows, or holds graphs, whose operators have") {
  const std::set<std::string_view> without_rule = {"Shape",   "Size", "Range", "ConstantOfShape",
                                                   "NonZero", "If",   "Loop"};
  for (const ir::OpDef* op : ir::all_ops()) {
    CAPTURE(op->name);
    CHECK((find_row_rule(*op) == nullptr) == without_rule.contains(op->name));
  }
  for (const auto& family : {movement_row_rules(), arithmetic_row_rules(), placement_row_rules()}) {
    for (const RowRule& rule : family) {
      CAPTURE(rule.op);
      CHECK(ir::find_op(rule.op) != nullptr);
    }
  }
}

}  // namespace
}  // namespace heddle::plan
