#include "drivers/host/layout/half_weights.h"

#include <algorithm>

#include "ir/ops/activation.h"

namespace heddle::host {
namespace {

// Of a Cast: the weight of a product, as its caller has brought it.
bool casts_weight(const ir::Graph& graph, const ir::Node& node) {
  if (!node.is("Cast") || std::ranges::find(graph.inputs, node.inputs[0]) == graph.inputs.end()) return false;
  const ir::DType from = graph.type(node.inputs[0]).dtype, to = graph.type(node.outputs[0]).dtype;
  if ((from != ir::DType::kF16 && from != ir::DType::kBF16) || to != ir::DType::kF32) return false;
  const std::optional<ir::Extents> extents = graph.type(node.outputs[0]).extents();
  return extents && extents->rank() == 2 && extents->elements() > 0;
}

}  // namespace

bool is_plain(const ir::Node& linear) {
  const bool has_residual = linear.inputs.size() > 3 && linear.inputs[3] != ir::kNoValue;
  const auto activation = ir::activation_of(linear);
  return !has_residual && activation.ok() && activation->kind == ir::ActivationKind::kNone;
}

std::vector<ir::ValueId> half_weights(const ir::Graph& graph) {
  std::vector<ir::ValueId> from(graph.values.size(), ir::kNoValue);
  for (const ir::Node& node : graph.nodes) {
    if (casts_weight(graph, node)) from[node.outputs[0]] = node.inputs[0];
  }
  for (const ir::Node& node : graph.nodes) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const bool as_weight = i == 1 && node.is("Linear") && is_plain(node);
      if (node.inputs[i] != ir::kNoValue && !as_weight) from[node.inputs[i]] = ir::kNoValue;
    }
  }
  for (const ir::ValueId id : graph.outputs) from[id] = ir::kNoValue;
  return from;
}

}  // namespace heddle::host
