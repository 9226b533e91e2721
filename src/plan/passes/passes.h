// passes.h: the steps of optimize(), each in the file of its name.
//
//   What       Graph -> Graph. Inputs, outputs, their names and their values stay; nodes between them change.
//   Invariant  Nodes stay in topological order; types stay right. A pass that finds nothing returns what it
//              was given.
//   Threads    Pure.
#pragma once

#include <cstdint>

#include "ir/graph.h"

namespace heddle::plan {

struct Fusions;

// What is constant, or known from static shapes, becomes a constant, as long as `work_left` lasts: that is
// counted by reference_work(), which also bounds the elements of the results. A node not computed stays.
Result<ir::Graph> fold(ir::Graph graph, int64_t& work_left);
// An If whose condition is known becomes the nodes of its branch, a short Loop those of its iterations.
Result<ir::Graph> inline_control(ir::Graph graph, bool& changed);
// The graphs inside the nodes that are left go through optimize(); constants they read become their own.
Result<ir::Graph> optimize_nested(ir::Graph graph, const Fusions& fusions, int64_t& work_left);
// optimize() with what is left for folding: a model and the graphs inside it share one allowance.
Result<ir::Graph> optimize_within(ir::Graph graph, const Fusions& fusions, int64_t& work_left);
// Nodes and values that reach no output go; graph inputs stay.
ir::Graph drop_dead(ir::Graph graph);
// Two nodes with one operator, inputs and attributes become one.
Result<ir::Graph> merge_equal(ir::Graph graph);
// No-ops go, movement chains get short, one meaning gets one spelling.
Result<ir::Graph> canonicalise(ir::Graph graph);
// GroupedMatMul becomes a product of every row with every matrix, or of each with a copy of its own.
Result<ir::Graph> spread_groups(ir::Graph graph);
Result<ir::Graph> fuse_linear(ir::Graph graph);
Result<ir::Graph> fuse_conv(ir::Graph graph);
Result<ir::Graph> fuse_layer_norm(ir::Graph graph);
Result<ir::Graph> fuse_gelu(ir::Graph graph);
// Hard-sigmoid and hard-swish from primitive nodes.
Result<ir::Graph> fuse_gates(ir::Graph graph);
Result<ir::Graph> fuse_attention(ir::Graph graph);
// The three Linears of an Attention over one input become one.
Result<ir::Graph> pack_projections(ir::Graph graph);
Result<ir::Graph> fuse_elementwise(ir::Graph graph);

}  // namespace heddle::plan
