// The part of GraphReader that reads ai.onnx.preview.FlexAttention: attention whose scores and shares pass
// through graphs of the model's.
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "onnx/graph_reader.h"
#include "onnx/names.h"
#include "onnx/node_graphs.h"
#include "onnx/operators/parts.h"

namespace heddle::onnx {

using ir::ValueId;

namespace {

const proto::AttributeProto* find_attribute(const proto::NodeProto& node, std::string_view name) {
  for (const proto::AttributeProto& attribute : node.attribute()) {
    if (attribute.name() == name) return &attribute;
  }
  return nullptr;
}

// The precision of the softmax: what the node says, else f32, and f64 for f64.
Result<ir::DType> softmax_dtype(const proto::NodeProto& node, ir::DType operands) {
  const proto::AttributeProto* written = find_attribute(node, "softmax_precision");
  if (written == nullptr) return operands == ir::DType::kF64 ? operands : ir::DType::kF32;
  const auto dtype =
      written->i() >= 0 && written->i() <= 255 ? dtype_of(static_cast<int>(written->i())) : std::nullopt;
  if (dtype && ir::is_float(*dtype)) return *dtype;
  return Status::invalid(describe(node), ": attribute 'softmax_precision' is ", written->i(),
                         "; it has to be the number of a floating-point element type");
}

Status check_operands(const Call& call) {
  HEDDLE_TRY_ASSIGN(const ir::TensorType q, call.type(0));
  HEDDLE_TRY_ASSIGN(const ir::TensorType k, call.type(1));
  HEDDLE_TRY_ASSIGN(const ir::TensorType v, call.type(2));
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4 || !ir::is_float(q.dtype) || k.dtype != q.dtype ||
      v.dtype != q.dtype) {
    return call.invalid("queries, keys and values are ", q, ", ", k, " and ", v,
                        "; they have to be floating-point tensors of one type and of rank 4");
  }
  for (const ir::TensorType& type : {q, k, v}) {
    if (!type.shape[1].is_static() || !type.shape[3].is_static()) {
      return call.unsupported("the numbers and sizes of heads must be known; an operand is ", type);
    }
  }
  const int64_t heads = q.shape[1].value(), shared = k.shape[1].value();
  if (shared != v.shape[1].value() || shared <= 0 || heads % shared != 0) {
    return call.invalid("there are ", heads, " query, ", shared, " key and ", v.shape[1].value(),
                        " value heads; keys and values have to have as many as each other, and queries a "
                        "multiple of that");
  }
  return {};
}

// Each head of keys or values, [batch, heads, positions, size], for each of the query heads that share it.
ValueId repeat_heads(Parts& parts, ValueId x, int64_t query_heads) {
  const int64_t heads = parts.type(x).shape[1].value();
  if (heads == query_heads) return x;
  const ValueId each =
      parts.join({parts.extents(x, 0, 2), parts.ints({query_heads / heads}), parts.extents(x, 2, 4)});
  const ValueId all = parts.join({parts.extent(x, 0), parts.ints({query_heads}), parts.extents(x, 2, 4)});
  const ValueId apart = parts.node("Expand", {parts.unsqueeze(x, {2}), each});
  return parts.node("Reshape", {apart, all}, {{"allowzero", int64_t{1}}});
}

}  // namespace

Status GraphReader::convert_flex_attention(const proto::NodeProto& node, Scope& scope) {
  HEDDLE_TRY(check_attributes(node, {"prob_mod", "scale", "score_mod", "softmax_precision"}));
  HEDDLE_TRY_ASSIGN(auto inputs, operands(node, scope));
  Call call({scope.prefix + node_name(node), node.op_type(), 1, static_cast<size_t>(node.output_size())},
            std::move(inputs), {}, scope.body->builder());
  HEDDLE_TRY(check_operands(call));
  const ir::TensorType q = call.value(call.input(0)).type;
  HEDDLE_TRY_ASSIGN(const ir::DType precision, softmax_dtype(node, q.dtype));
  const proto::AttributeProto* written = find_attribute(node, "scale");
  const double scale =
      written != nullptr ? double{written->f()} : 1 / std::sqrt(static_cast<double>(q.shape[3].value()));
  if (!(scale > 0) || std::isinf(scale)) {
    return call.invalid("attribute 'scale' is ", scale, "; it has to be a number above 0");
  }
  Parts parts(call);
  const int64_t heads = q.shape[1].value();
  // Each side takes the root of the scale, so that products of f16 operands stay in range.
  const ValueId root = parts.number(q.dtype, std::sqrt(scale));
  const ValueId queries = parts.pair("Mul", call.input(0), root);
  const ValueId keys = parts.pair("Mul", repeat_heads(parts, call.input(1), heads), root);
  ValueId scores = parts.pair("MatMul", queries, parts.transpose(keys, {0, 1, 3, 2}));
  scores = parts.cast(scores, precision);
  HEDDLE_TRY(parts.status());
  HEDDLE_TRY_ASSIGN(scores, inline_modifier(node, "score_mod", scores, scope));
  ValueId shares = parts.node("Softmax", {scores}, {{"axis", int64_t{-1}}});
  HEDDLE_TRY(parts.status());
  HEDDLE_TRY_ASSIGN(shares, inline_modifier(node, "prob_mod", shares, scope));
  HEDDLE_TRY(parts.emit(
      parts.pair("MatMul", parts.cast(shares, q.dtype), repeat_heads(parts, call.input(2), heads))));
  bind_outputs(node, call.bound(), scope);
  return {};
}

// What the node's graph `name` makes of x; x itself where the node has no such graph.
Result<ValueId> GraphReader::inline_modifier(const proto::NodeProto& node, std::string_view name, ValueId x,
                                             Scope& scope) {
  const proto::GraphProto* graph = find_graph(node, name);
  if (graph == nullptr) {
    if (find_attribute(node, name) == nullptr) return x;
    return Status::invalid(describe(node), ": attribute '", name, "' has to be a graph");
  }
  if (graph->input_size() != 1 || graph->output_size() != 1) {
    return Status::invalid(describe(node), ": ", name, " takes ", graph->input_size(), " inputs and gives ",
                           graph->output_size(), " outputs; it has to take 1 and give 1");
  }
  if (depth_ >= limits_.nesting) {
    return Status::invalid(describe(node), ": graphs lie in graphs more than ", limits_.nesting, " deep");
  }
  Scope inner = inner_scope(scope, scope.body);
  inner.prefix += node_name(node) + "/" + std::string(name) + "/";
  ++depth_;
  const auto read = [&]() -> Result<ValueId> {
    HEDDLE_TRY(read_initializers(*graph, inner));
    HEDDLE_TRY(bind_input(*graph, 0, x, inner));
    HEDDLE_TRY(convert_nodes(graph->node(), inner));
    HEDDLE_TRY_ASSIGN(const std::vector<ValueId> made, read_outputs(*graph, inner));
    return made.front();
  };
  const Result<ValueId> made = read();
  --depth_;
  const std::string where = text(describe(node), ": ", name);
  if (!made.ok()) return made.status().with_context(where);
  const ir::TensorType &before = scope.body->value(x).type, &after = scope.body->value(*made).type;
  bool same = before.dtype == after.dtype && before.rank() == after.rank();
  for (size_t axis = 0; same && axis < before.rank(); ++axis) {
    same = ir::Dim::may_equal(before.shape[axis], after.shape[axis]);
  }
  if (same) return made;
  return Status::invalid(where, " makes ", after, " of ", before, "; type and shape have to stay");
}

}  // namespace heddle::onnx
