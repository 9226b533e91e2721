#include "drivers/host/layout/half_operands.h"

#include <algorithm>

#include "ir/ops/activation.h"

namespace heddle::host {
namespace {

constexpr size_t kMultiplied = 0, kWeight = 1;  // inputs of a Linear, and of a Conv

// Of a Cast: what a product takes, as its caller has brought it.
bool casts_input(const ir::Graph& graph, const ir::Node& node) {
  if (!node.is("Cast") || std::ranges::find(graph.inputs, node.inputs[0]) == graph.inputs.end()) return false;
  const ir::DType from = graph.type(node.inputs[0]).dtype, to = graph.type(node.outputs[0]).dtype;
  if ((from != ir::DType::kF16 && from != ir::DType::kBF16) || to != ir::DType::kF32) return false;
  const std::optional<ir::Extents> extents = graph.type(node.outputs[0]).extents();
  return extents && extents->elements() > 0;
}

// Without activation and residual: what half_linear.h and bf16_linear.h compute.
bool is_plain_linear(const ir::Graph& graph, const ir::Node& node) {
  if (!node.is("Linear") || graph.type(node.inputs[kWeight]).shape.size() != 2) return false;
  const bool has_residual = node.inputs.size() > 3 && node.inputs[3] != ir::kNoValue;
  const auto activation = ir::activation_of(node);
  return !has_residual && activation.ok() && activation->kind == ir::ActivationKind::kNone;
}

// What ConvStep computes.
bool is_conv(const ir::Graph& graph, const ir::Node& node) {
  constexpr size_t kMostAxes = 5;
  if (!node.is("Conv")) return false;
  const auto x = graph.type(node.inputs[kMultiplied]).extents(),
             w = graph.type(node.inputs[kWeight]).extents();
  return x && w && x->rank() <= kMostAxes && x->elements() > 0 && w->elements() > 0;
}

// The Casts that `accepts` all readers of, each with the place at which it reads and the dtype brought.
template <class Accepts>
std::vector<ir::ValueId> casts_read_by(const ir::Graph& graph, Accepts accepts) {
  std::vector<ir::ValueId> from(graph.values.size(), ir::kNoValue);
  for (const ir::Node& node : graph.nodes) {
    if (casts_input(graph, node)) from[node.outputs[0]] = node.inputs[0];
  }
  for (const ir::Node& node : graph.nodes) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ir::ValueId read = node.inputs[i];
      if (read == ir::kNoValue || from[read] == ir::kNoValue) continue;
      if (!accepts(node, i, graph.type(from[read]).dtype)) from[read] = ir::kNoValue;
    }
  }
  for (const ir::ValueId id : graph.outputs) from[id] = ir::kNoValue;
  return from;
}

}  // namespace

std::vector<ir::ValueId> half_operands(const ir::Graph& graph, bool multiplies_bf16) {
  const auto is_weight = [&](const ir::Node& node, size_t place, ir::DType) {
    return place == kWeight && (is_conv(graph, node) || is_plain_linear(graph, node));
  };
  std::vector<ir::ValueId> from = casts_read_by(graph, is_weight);
  const auto is_multiplied = [&](const ir::Node& node, size_t place, ir::DType given) {
    if (place != kMultiplied) return false;
    if (is_conv(graph, node)) return true;
    if (!multiplies_bf16 || given != ir::DType::kBF16 || !is_plain_linear(graph, node)) return false;
    const ir::ValueId weight = from[node.inputs[kWeight]];
    return weight != ir::kNoValue && graph.type(weight).dtype == ir::DType::kBF16;
  };
  const std::vector<ir::ValueId> multiplied = casts_read_by(graph, is_multiplied);
  for (ir::ValueId id = 0; id < from.size(); ++id) {
    if (multiplied[id] != ir::kNoValue) from[id] = multiplied[id];
  }
  return from;
}

}  // namespace heddle::host
