#include "plan/optimize.h"

#include <utility>

#include "plan/passes.h"

namespace heddle::plan {

namespace {

// What folds may decide a condition or a count, whose nodes may fold again.
Result<ir::Graph> fold_control(ir::Graph graph) {
  for (bool changed = true; changed;) {
    HEDDLE_TRY_ASSIGN(graph, fold(std::move(graph)));
    HEDDLE_TRY_ASSIGN(graph, inline_control(std::move(graph), changed));
  }
  return graph;
}

}  // namespace

Result<ir::Graph> optimize(ir::Graph graph, const Fusions& fusions) {
  using Pass = Result<ir::Graph> (*)(ir::Graph);
  struct Stage {
    bool wanted;
    Pass pass;
  };
  // Canonical forms come first and again after each group: what one fusion removes lets movements meet and
  // cancel. GELU and LayerNormalization precede Linear, which takes in GELU; element-wise chains come last
  // and get what nobody else wanted.
  const Stage stages[] = {
      {true, fold_control},
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
      {true, fold},
      {fusions.elementwise, fuse_elementwise},
  };
  for (const Stage& stage : stages) {
    if (!stage.wanted) continue;
    HEDDLE_TRY_ASSIGN(graph, stage.pass(std::move(graph)));
  }
  HEDDLE_TRY_ASSIGN(graph, optimize_nested(std::move(graph), fusions));
  graph = drop_dead(std::move(graph));
  HEDDLE_TRY(ir::validate(graph));
  return graph;
}

}  // namespace heddle::plan
