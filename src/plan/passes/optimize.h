// optimize.h: the passes of the first stage, in order: what can be done once per model, while shapes are
// symbolic.
//
//   What       Constant folding, dead code, canonical forms, fusion. Each pass is a function of a graph in
//              its own file; every pass keeps the graph's inputs, outputs and values (tests compare
//              ir::evaluate before and after).
//   Nested     Branches and bodies go through the same passes, after what is decided was inlined.
//   Threads    Pure.
#pragma once

#include "ir/graph.h"

namespace heddle::plan {

// The fused forms a driver can run. A pass that would make another is skipped.
struct Fusions {
  bool linear = true;      // MatMul/Gemm + bias + activation + residual -> Linear
  bool conv = true;        // Conv + BatchNormalization + residual + activation -> Conv
  bool layer_norm = true;  // primitive nodes -> LayerNormalization
  bool gelu = true;        // erf and tanh forms -> Gelu
  // Projections, scores, mask, softmax -> Attention, packed where one input gives q, k, v.
  bool attention = true;
  bool elementwise = true;  // chains -> Elementwise
  bool groups = true;       // GroupedMatMul stays, where else it is made of other products
};

Result<ir::Graph> optimize(ir::Graph graph, const Fusions& fusions = {});

}  // namespace heddle::plan
