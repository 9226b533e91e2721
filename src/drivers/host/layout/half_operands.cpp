#include "drivers/host/layout/half_operands.h"

#include <algorithm>

#include "ir/ops/activation.h"

namespace heddle::host {
namespace {

constexpr size_t kMultiplied = 0, kWeight = 1;  // inputs of a Linear

// Of a Cast: what a product takes, as its caller has brought it.
bool casts_input(const ir::Graph& graph, const ir::Node& node) {
  if (!node.is("Cast") || std::ranges::find(graph.inputs, node.inputs[0]) == graph.inputs.end()) return false;
  const ir::DType from = graph.type(node.inputs[0]).dtype, to = graph.type(node.outputs[0]).dtype;
  if ((from != ir::DType::kF16 && from != ir::DType::kBF16) || to != ir::DType::kF32) return false;
  const std::optional<ir::Extents> extents = graph.type(node.outputs[0]).extents();
  return extents && extents->elements() > 0;
}

// Without activation and residual: what half_linear.h and bf16_linear.h compute.
bool is_plain(const ir::Node& node) {
  if (!node.is("Linear")) return false;
  const bool has_residual = node.inputs.size() > 3 && node.inputs[3] != ir::kNoValue;
  const auto activation = ir::activation_of(node);
  return !has_residual && activation.ok() && activation->kind == ir::ActivationKind::kNone;
}

// The Casts that `accepts` all readers of, each with the place at which it reads.
template <class Accepts>
std::vector<ir::ValueId> casts_read_by(const ir::Graph& graph, Accepts accepts) {
  std::vector<ir::ValueId> from(graph.values.size(), ir::kNoValue);
  for (const ir::Node& node : graph.nodes) {
    if (casts_input(graph, node)) from[node.outputs[0]] = node.inputs[0];
  }
  for (const ir::Node& node : graph.nodes) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != ir::kNoValue && !accepts(node, i)) from[node.inputs[i]] = ir::kNoValue;
    }
  }
  for (const ir::ValueId id : graph.outputs) from[id] = ir::kNoValue;
  return from;
}

}  // namespace

std::vector<ir::ValueId> half_operands(const ir::Graph& graph, bool multiplies_bf16) {
  std::vector<ir::ValueId> from = casts_read_by(graph, [&](const ir::Node& node, size_t place) {
    return place == kWeight && is_plain(node) && graph.type(node.inputs[kWeight]).shape.size() == 2;
  });
  if (!multiplies_bf16) return from;
  const auto is_bf16 = [&](ir::ValueId id) {
    return from[id] != ir::kNoValue && graph.type(from[id]).dtype == ir::DType::kBF16;
  };
  const std::vector<ir::ValueId> multiplied = casts_read_by(graph, [&](const ir::Node& node, size_t place) {
    return place == kMultiplied && is_plain(node) && is_bf16(node.inputs[kWeight]);
  });
  for (ir::ValueId id = 0; id < from.size(); ++id) {
    if (multiplied[id] != ir::kNoValue && graph.type(multiplied[id]).dtype == ir::DType::kBF16)
      from[id] = multiplied[id];
  }
  return from;
}

}  // namespace heddle::host
