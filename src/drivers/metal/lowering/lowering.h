// lowering.h: node -> operators of MPSGraph, one table entry per operator of ir.
//
//   What       find_path() maps an operator's name to the function that emits it, or to why Metal does not
//              run it. Families list their entries in one array each (a file a family); paths.mm gathers
//              them. No entry: unsupported, by name.
//   Paths      graph: one operator of MPSGraph; composed: several. Nothing needs a kernel of ours. The reason
//              says why a path is not the plain one, or which version or fault it avoids.
//   Wide       Entries marked wide compute f16 and bf16 in f32: MPSGraph rounds after each of several
//              operators, and has bf16 for few.
//   Halves     Entries marked halves take f16 operands where the module is loaded with that precision.
//   Empty      MPSGraph has no empty tensors. Nodes without elements to make are left out; an entry sees an
//              empty operand (nil, with elements(i) == 0) only when it is marked takes_empty.
//   Threads    One thread builds one graph.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/metal/lowered.h"
#include "drivers/metal/lowering/emit.h"
#include "ir/graph.h"

namespace heddle::metal {

class GraphWork;  // the graph around the node (graph_work.h)

// A mistake in the data that the executable has to report: `wrong` is bool.
struct Mistake {
  Tensor wrong;
  size_t input;  // whose elements, or blocks of them, `wrong` speaks of: has that operand's leading axes
  std::string text;
};

struct Lowering {
  const ir::Graph& graph;  // specialised: every type static
  const ir::Node& node;
  const Emit& emit;
  GraphWork& work;
  const Defences& defences;
  std::vector<Tensor> inputs;   // as many as node.inputs; nil for absent or empty ones
  std::vector<Tensor> outputs;  // to be set, but for those without elements or readers' names
  std::vector<Mistake> mistakes;

  bool has(size_t input) const { return node.has_input(input); }
  const ir::Value& value(size_t input) const { return graph.values[node.inputs[input]]; }
  ir::Extents extents(size_t input) const { return *value(input).type.extents(); }
  int64_t elements(size_t input) const { return extents(input).elements(); }
  const ir::Tensor* constant(size_t input) const;                    // null: not known while compiling
  Result<Axes> integers(size_t input, std::string_view what) const;  // unsupported unless known
  ir::Extents out_extents(size_t output = 0) const {
    return *graph.values[node.outputs[output]].type.extents();
  }
  ir::DType out_dtype(size_t output = 0) const { return graph.values[node.outputs[output]].type.dtype; }
  const ir::Attributes& attributes() const { return node.attributes; }
  // `indices` has to lie within [-extent, extent); gives them within [0, extent), whatever they are.
  Tensor within(size_t input, Tensor indices, int64_t extent);
};

using Lower = Status (*)(Lowering& lowering);

enum class Path : uint8_t { graph, composed, refused };
enum Property : uint8_t { kPlain = 0, kWide = 1, kTakesEmpty = 2, kHalves = 4 };

// Why an operator has no path of its own in the narrow types.
inline constexpr std::string_view kNarrow = "f16 and bf16 are computed in f32: MPSGraph has no bf16 for it";

struct PathEntry {
  std::string_view op;
  Path path;
  Lower lower;  // null: refused
  uint8_t properties = kPlain;
  std::string_view reason = "";
};

const PathEntry* find_path(std::string_view op);  // null: no entry
std::span<const PathEntry* const> all_paths();

std::span<const PathEntry> elementwise_paths();
std::span<const PathEntry> binary_paths();
std::span<const PathEntry> product_paths();
std::span<const PathEntry> convolution_paths();
std::span<const PathEntry> pooling_paths();
std::span<const PathEntry> normalization_paths();
std::span<const PathEntry> attention_paths();
std::span<const PathEntry> reduction_paths();
std::span<const PathEntry> order_paths();
std::span<const PathEntry> movement_paths();
std::span<const PathEntry> index_paths();
std::span<const PathEntry> resize_paths();
std::span<const PathEntry> sampling_paths();
std::span<const PathEntry> recurrent_paths();
std::span<const PathEntry> control_paths();

}  // namespace heddle::metal
