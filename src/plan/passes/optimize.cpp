#include "plan/passes/optimize.h"

#include <utility>

#include "plan/passes/passes.h"

namespace heddle::plan {

namespace {

// For folding a whole model. A few nodes of a small file could otherwise make constants without end: Expand
// makes many elements of one. Weights may pass through a chain of nodes that prepare them.
constexpr int64_t kWork = int64_t{1} << 25;
constexpr int64_t kWorkForWeights = 16;  // times their elements

int64_t work_for(const ir::Graph& graph) {
  int64_t elements = 0;
  ir::each_constant(graph, [&](const ir::Tensor& constant) { elements += constant.elements(); });
  return kWork + kWorkForWeights * elements;
}

// What folds may decide a condition or a count, whose nodes may fold again.
Result<ir::Graph> fold_control(ir::Graph graph, int64_t& work_left) {
  for (bool changed = true; changed;) {
    HEDDLE_TRY_ASSIGN(graph, fold(std::move(graph), work_left));
    HEDDLE_TRY_ASSIGN(graph, inline_control(std::move(graph), changed));
  }
  return graph;
}

}  // namespace

Result<ir::Graph> optimize(ir::Graph graph, const Fusions& fusions) {
  int64_t work_left = work_for(graph);
  return optimize_within(std::move(graph), fusions, work_left);
}

Result<ir::Graph> optimize_within(ir::Graph graph, const Fusions& fusions, int64_t& work_left) {
  using Pass = Result<ir::Graph> (*)(ir::Graph);
  struct Stage {
    bool wanted;
    Pass pass;
  };
  // Canonical forms come first and again after each group: what one fusion removes lets movements meet and
  // cancel. GELU and LayerNormalization precede Linear, which takes in GELU; element-wise chains come last
  // and get what no other pass wanted.
  const Stage stages[] = {
      {!fusions.groups, spread_groups},
      {true, canonicalise},
      {true, merge_equal},
      {fusions.gelu, fuse_gelu},
      {fusions.gelu, fuse_gates},
      {fusions.layer_norm, fuse_layer_norm},
      {fusions.linear, fuse_linear},
      {fusions.conv, fuse_conv},
      {fusions.attention, fuse_attention},
      {fusions.attention && fusions.linear, pack_projections},
      {true, canonicalise},
      {fusions.linear, fuse_linear},
      {true, canonicalise},
      {true, merge_equal},
  };
  HEDDLE_TRY_ASSIGN(graph, fold_control(std::move(graph), work_left));
  for (const Stage& stage : stages) {
    if (!stage.wanted) continue;
    HEDDLE_TRY_ASSIGN(graph, stage.pass(std::move(graph)));
  }
  HEDDLE_TRY_ASSIGN(graph, fold(std::move(graph), work_left));
  if (fusions.elementwise) {
    HEDDLE_TRY_ASSIGN(graph, fuse_elementwise(std::move(graph)));
  }
  HEDDLE_TRY_ASSIGN(graph, optimize_nested(std::move(graph), fusions, work_left));
  graph = drop_dead(std::move(graph));
  HEDDLE_TRY(ir::validate(graph));
  return graph;
}

}  // namespace heddle::plan
