// lowering.h: node -> Step, one table entry per operator.
//
//   What       lowerings() maps an operator's name to the function that prepares it for concrete operands.
//              Families register by listing their entries in one array each (onednn/*.cpp, kernels/*.cpp);
//              lowering.cpp gathers the arrays. No entry: unsupported, by name.
//   Threads    The functions are called with no lock held, by any thread.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "drivers/host/step.h"
#include "ir/graph.h"

namespace heddle::host {

class WeightStore;  // packed weights of a module, shared by all shapes (onednn/weight_store.h)

struct Lowering {
  const ir::Graph& graph;  // specialised: every type static
  const ir::Node& node;
  std::vector<Operand> inputs;  // as many as node.inputs; absent ones are kNone
  std::vector<Operand> outputs;
  WeightStore& weights;
  int width;            // threads in the budget: prepare splits for up to this many
  bool turned = false;  // the operands' axes are [N, spatial.., C], the node's otherwise (channel_layout.h)
  bool outermost = false;            // the graph is the module's own, not known to be a node's
  uint64_t bytes_left = UINT64_MAX;  // of the memory limit, for what the step keeps and its scratch
  Status has_room_for(uint64_t bytes, std::string_view what) const;  // exhausted when it has not
  const ir::Value& value(size_t input) const { return graph.values[node.inputs[input]]; }
  // What a caller brings, and not what the graph around a body does.
  bool is_model_input(size_t input) const {
    return outermost && std::ranges::find(graph.inputs, node.inputs[input]) != graph.inputs.end();
  }
};

using Lower = Result<std::unique_ptr<Step>> (*)(Lowering& lowering);

struct LoweringEntry {
  std::string_view op;
  Lower lower;
};

Lower find_lowering(std::string_view op);  // null when the host cannot run it

// The families in kernels/.
// Unary and binary operators, Where, Cast, Clip, Elementwise:
std::span<const LoweringEntry> elementwise_lowerings();
// Transpose, Concat, Split, Slice, Gather and its like, Expand, Pad, Tile, OneHot, CumSum, Trilu, TopK:
std::span<const LoweringEntry> movement_lowerings();
// The reductions, ArgMax, ArgMin:
std::span<const LoweringEntry> reduction_lowerings();
// Softmax, LogSoftmax, and the normalisations but BatchNormalization:
std::span<const LoweringEntry> row_lowerings();
// What runs ir's reference (kernels/reference_step.h):
std::span<const LoweringEntry> reference_lowerings();
// MatMulInteger, ConvInteger:
std::span<const LoweringEntry> integer_lowerings();

// If, Loop (control_flow.cpp):
std::span<const LoweringEntry> control_lowerings();

// And in onednn/.
std::span<const LoweringEntry> matmul_lowerings();     // MatMul, Gemm, Linear, GroupedMatMul
std::span<const LoweringEntry> conv_lowerings();       // Conv, ConvTranspose, the pools, BatchNormalization
std::span<const LoweringEntry> recurrent_lowerings();  // RNN, GRU, LSTM
std::span<const LoweringEntry> attention_lowerings();  // Attention

}  // namespace heddle::host
