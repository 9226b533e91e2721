#include "plan/cost.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "ir/op.h"

namespace heddle::plan {

using ir::Extents;
using ir::Graph;
using ir::Node;
using ir::ValueId;

namespace {

Extents extents(const Graph& graph, ValueId id) {
  return graph.type(id).extents().value_or(Extents({0}));  // a specialised graph has no other
}

double elements(const Graph& graph, ValueId id) { return static_cast<double>(extents(graph, id).elements()); }

double bytes(const Graph& graph, ValueId id) {
  return elements(graph, id) * static_cast<double>(ir::size_of(graph.type(id).dtype));
}

double from_end(const Extents& e, size_t axis) {
  return e.rank() < axis ? 1 : static_cast<double>(e[e.rank() - axis]);
}

double product_from(const Extents& e, size_t axis) {
  double product = 1;
  for (; axis < e.rank(); ++axis) product *= static_cast<double>(e[axis]);
  return product;
}

bool is_any(const Node& node, std::initializer_list<std::string_view> names) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) { return node.is(name); });
}

// Scores and their product with the values; causal ones count in full, since half of them is skipped by
// kernels that tile well only.
double attention_flops(const Graph& graph, const Node& node) {
  const double heads = static_cast<double>(node.attributes.i64("num_heads"));
  const Extents q = extents(graph, node.inputs[0]), y = extents(graph, node.outputs[0]);
  const Extents k = node.has_input(1) ? extents(graph, node.inputs[1]) : q;
  const double kv_heads = static_cast<double>(node.attributes.i64("kv_heads", static_cast<int64_t>(heads)));
  const double in_q = node.has_input(1) ? heads : heads + 2 * kv_heads;
  const double width = from_end(q, 1) / in_q + from_end(y, 1) / heads;  // of a head's key and value
  return 2 * from_end(q, 3) * heads * from_end(q, 2) * from_end(k, 2) * width;
}

// Per position and state element: decay, read, correct, write, each a multiplication and an addition. Keys
// and values span the state's axes, once per head.
double linear_attention_flops(const Graph& graph, const Node& node) {
  const double heads = static_cast<double>(node.attributes.i64("kv_num_heads"));
  return 8 * elements(graph, node.inputs[1]) * from_end(extents(graph, node.inputs[2]), 1) / heads;
}

double recurrent_flops(const Graph& graph, const Node& node) {
  const Extents x = extents(graph, node.inputs[0]);
  const double rows = static_cast<double>(x[0]) * static_cast<double>(x[1]);
  return 2 * rows * (elements(graph, node.inputs[1]) + elements(graph, node.inputs[2]));
}

double pooling_flops(const Graph& graph, const Node& node) {
  double kernel = 1;
  for (const int64_t extent : node.attributes.ints("kernel_shape")) kernel *= static_cast<double>(extent);
  return elements(graph, node.outputs[0]) * kernel;
}

// None for operators that multiply no matrices and slide no windows.
std::optional<double> product_flops(const Graph& graph, const Node& node) {
  if (is_any(node, {"RNN", "GRU", "LSTM"})) return recurrent_flops(graph, node);
  if (node.is("LinearAttention")) return linear_attention_flops(graph, node);
  if (node.outputs[0] == ir::kNoValue) return std::nullopt;
  const double out = elements(graph, node.outputs[0]);
  if (is_any(node, {"MatMul", "MatMulInteger", "Linear", "GroupedMatMul"})) {
    return 2 * out * from_end(extents(graph, node.inputs[0]), 1);
  }
  if (node.is("Gemm")) {
    const bool transposed = node.attributes.i64("transA") != 0;
    return 2 * out * from_end(extents(graph, node.inputs[0]), transposed ? 2 : 1);
  }
  if (is_any(node, {"Conv", "ConvInteger"})) return 2 * out * product_from(extents(graph, node.inputs[1]), 1);
  if (node.is("ConvTranspose")) {
    return 2 * elements(graph, node.inputs[0]) * product_from(extents(graph, node.inputs[1]), 1);
  }
  if (node.is("Attention")) return attention_flops(graph, node);
  if (is_any(node, {"MaxPool", "AveragePool", "LpPool"})) return pooling_flops(graph, node);
  return std::nullopt;
}

bool reads_by_index(const Node& node) {
  return is_any(node, {"Gather", "GatherElements", "GatherND", "Slice", "Split", "Expand", "Tile"});
}

}  // namespace

std::optional<Cost> cost(const Graph& graph, const Node& node) {
  if (is_any(node, {"If", "Loop"})) return std::nullopt;
  double read = 0, written = 0, largest = 0;
  for (ValueId id : node.outputs) {
    if (id == ir::kNoValue) continue;
    written += bytes(graph, id);
    largest = std::max(largest, elements(graph, id));
  }
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!node.has_input(i)) continue;
    const bool table = i == 0 && reads_by_index(node);
    read += table ? std::min(written, bytes(graph, node.inputs[i])) : bytes(graph, node.inputs[i]);
    if (!table) largest = std::max(largest, elements(graph, node.inputs[i]));
  }
  const auto body = node.attributes.graph("body");
  const double operators = body == nullptr ? 1 : static_cast<double>(body->nodes.size());
  return Cost{product_flops(graph, node).value_or(operators * largest), read + written};
}

double seconds(const Cost& cost, const Rates& rates) {
  const bool cached = cost.bytes <= rates.cached_bytes;
  const double bytes_per_s = cached ? rates.cached_bytes_per_s : rates.memory_bytes_per_s;
  return rates.step_s + std::max(cost.flops / rates.flops_per_s, cost.bytes / bytes_per_s);
}

}  // namespace heddle::plan
