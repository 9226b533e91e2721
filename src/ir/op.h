// op.h: what an operator means: arity, attributes, shape rule, slow obvious reference.
//
//   What       One OpDef per operator, in the table of its family (ops/*.cpp). Adding an operator is one
//              entry here with shape rule and reference, one lowering entry per driver, and one reader entry
//              per format that spells it.
//   Semantics  Names and meaning follow the newest ONNX opset unless the entry says otherwise; axes, shapes
//              and the like are inputs where ONNX has them so.
//   Threads    Entries are constants; the functions are pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"

namespace heddle::ir {

enum class AttributeKind : uint8_t { kInt, kFloat, kString, kInts, kFloats, kTensor, kGraph };

struct AttributeDef {
  std::string_view name;
  AttributeKind kind;
  bool required = false;
};

// How the elements of the outputs depend on those of the inputs. Fusion and the batchable proof read it;
// kOther has its own rule.
enum class Dependence : uint8_t { kElementwise, kOther };

struct OpDef {
  std::string_view name;
  int inputs_min;
  int inputs_max;  // -1: any number
  int outputs_min;
  int outputs_max;  // -1: any number
  std::vector<AttributeDef> attributes;
  // Types (and contents, where shapes determine them) of the outputs. `in[i]` is null for an absent optional
  // input. The same rule serves symbolic and concrete shapes. Returns one Value per output of the node (name
  // and constant are ignored), or invalid / unsupported.
  Result<std::vector<Value>> (*infer)(const Node& node, std::span<const Value* const> in);
  // Reads `in` (null for absent), writes `out`, which has the inferred types. Clarity before speed; floats
  // are computed in double. Returns invalid when only the data shows the mistake (an index out of range).
  Status (*reference)(const Node& node, std::span<const Tensor* const> in, std::span<Tensor> out);
  Dependence dependence = Dependence::kOther;
};

const OpDef* find_op(std::string_view name);  // null when unknown
std::span<const OpDef* const> all_ops();      // sorted by name

// Arity and attributes of one node against its operator's entry. Errors name the argument, not the node.
Status check_form(const Node& node);
// Runs the shape rule with arity and attributes checked first; errors carry node.describe(). Shapes that are
// too large are refused here.
Result<std::vector<Value>> infer(const Node& node, std::span<const Value* const> in);
// The shape rule for concrete operands, then the reference. Errors carry node.describe().
Result<std::vector<Tensor>> evaluate(const Node& node, std::span<const Tensor* const> in);

// Types of a graph's outputs for such operands, by the shape rules of its nodes.
Result<std::vector<Value>> infer(const Graph& graph, std::span<const Value* const> in);

// The oracle: runs the graph node by node with the references. `inputs` in graph order; types are checked.
Result<std::vector<Tensor>> evaluate(const Graph& graph, std::span<const Tensor> inputs);

}  // namespace heddle::ir
