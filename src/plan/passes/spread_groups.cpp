#include <algorithm>

#include "plan/passes/passes.h"
#include "plan/passes/rewrite.h"

namespace heddle::plan {

using ir::Node;
using ir::Tensor;
using ir::ValueId;

namespace {

constexpr int64_t kFirst = 0, kSecond = 1;

// Emits under the name of the node that goes.
class Spread {
 public:
  Spread(Rewriter& rw, const Node& node) : rw_(rw), node_(node) {}

  Status run() {
    const ValueId a = node_.inputs[0];
    HEDDLE_TRY_ASSIGN(const ValueId b, matrices());
    HEDDLE_TRY_ASSIGN(const ValueId rows, places(a));
    HEDDLE_TRY_ASSIGN(ValueId ends, emit("Cast", {node_.inputs[2]}, {{"to", std::string("i64")}}));
    HEDDLE_TRY_ASSIGN(ends, emit("Unsqueeze", {ends, numbers({1}, {kSecond})}));
    HEDDLE_TRY_ASSIGN(ValueId group, emit("LessOrEqual", {ends, rows}));
    HEDDLE_TRY_ASSIGN(group, emit("Cast", {group}, {{"to", std::string("i64")}}));
    HEDDLE_TRY_ASSIGN(group, emit("ReduceSum", {group, numbers({1}, {kFirst})}, {{"keepdims", int64_t{0}}}));
    const ir::Dim &count = rw_.shape(a)[0], &groups = rw_.shape(b)[0];
    if (count.is_static() && groups.is_static() && count.value() < groups.value())
      return copy_matrices(a, b, group, groups.value());
    return multiply_all(a, b, group);
  }

 private:
  Result<ValueId> emit(std::string_view op, std::vector<ValueId> inputs, ir::Attributes attributes = {}) {
    return rw_.emit(op, std::move(inputs), std::move(attributes), node_.name + "/groups");
  }
  ValueId numbers(const ir::Extents& extents, const std::vector<int64_t>& values) {
    return rw_.constant(integer_tensor(ir::DType::kI64, extents, values), node_.name + "/groups");
  }
  Result<ValueId> zero() {
    return rw_.constant(Tensor::zeros(rw_.dtype(node_.inputs[0]), {}), node_.name + "/zero");
  }

  // As [G, K, N].
  Result<ValueId> matrices() {
    const ValueId b = node_.inputs[1];
    if (node_.attributes.i64("trans_b") == 0) return b;
    return emit("Transpose", {b}, {{"perm", std::vector<int64_t>{0, 2, 1}}});
  }

  // 0 .. the first extent of `of`.
  Result<ValueId> places(ValueId of) {
    const ir::Dim& extent = rw_.shape(of)[0];
    ValueId count = ir::kNoValue;
    if (extent.is_static()) {
      count = numbers({}, {extent.value()});
    } else {
      HEDDLE_TRY_ASSIGN(const ValueId shape, emit("Shape", {of}));
      HEDDLE_TRY_ASSIGN(count, emit("Gather", {shape, numbers({}, {0})}));
    }
    return emit("Range", {numbers({}, {0}), count, numbers({}, {1})});
  }

  // Of fewer rows than groups, each takes a copy of its own matrix.
  Status copy_matrices(ValueId a, ValueId b, ValueId group, int64_t groups) {
    HEDDLE_TRY_ASSIGN(const ValueId known, emit("Min", {group, numbers({}, {groups - 1})}));
    HEDDLE_TRY_ASSIGN(const ValueId own, emit("Gather", {b, known}));
    HEDDLE_TRY_ASSIGN(ValueId made, emit("Unsqueeze", {a, numbers({1}, {kSecond})}));
    HEDDLE_TRY_ASSIGN(made, emit("MatMul", {made, own}));
    HEDDLE_TRY_ASSIGN(made, emit("Squeeze", {made, numbers({1}, {kSecond})}));
    HEDDLE_TRY_ASSIGN(ValueId in_one, emit("Less", {group, numbers({}, {groups})}));
    HEDDLE_TRY_ASSIGN(in_one, emit("Unsqueeze", {in_one, numbers({1}, {kSecond})}));
    HEDDLE_TRY_ASSIGN(const ValueId nothing, zero());
    return rw_.replace(node_, "Where", {in_one, made, nothing});
  }

  // Every row meets every matrix, and its own group's product is kept.
  Status multiply_all(ValueId a, ValueId b, ValueId group) {
    HEDDLE_TRY_ASSIGN(ValueId own, places(b));
    HEDDLE_TRY_ASSIGN(own, emit("Unsqueeze", {own, numbers({1}, {kSecond})}));
    HEDDLE_TRY_ASSIGN(own, emit("Equal", {own, group}));
    HEDDLE_TRY_ASSIGN(own, emit("Unsqueeze", {own, numbers({1}, {2})}));
    HEDDLE_TRY_ASSIGN(const ValueId made, emit("MatMul", {a, b}));
    HEDDLE_TRY_ASSIGN(const ValueId nothing, zero());
    HEDDLE_TRY_ASSIGN(const ValueId kept, emit("Where", {own, made, nothing}));
    return rw_.replace(node_, "ReduceSum", {kept, numbers({1}, {kFirst})}, {{"keepdims", int64_t{0}}});
  }

  Rewriter& rw_;
  const Node& node_;
};

}  // namespace

Result<ir::Graph> spread_groups(ir::Graph graph) {
  Rewriter rewriter(std::move(graph));
  return rewriter.run([](Rewriter& rw, const Node& node) -> Status {
    return node.is("GroupedMatMul") ? Spread(rw, node).run() : Status();
  });
}

}  // namespace heddle::plan
