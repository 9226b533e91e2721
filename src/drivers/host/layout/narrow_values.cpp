#include "drivers/host/layout/narrow_values.h"

#include "drivers/host/layout/storage.h"
#include "ir/op.h"

namespace heddle::host {
namespace {

class Narrowing {
 public:
  Narrowing(const ir::Graph& graph, std::span<const ir::ValueId> roots, std::vector<Operand>& operands)
      : graph_(graph), roots_(roots), operands_(operands), kin_(roots.begin(), roots.end()) {}

  void choose() {
    for (const ir::Node& node : graph_.nodes) {
      if (passes(node)) kin_[node.outputs[0]] = kin(node.inputs[0]);
    }
    std::vector<bool> written(operands_.size()), refused(operands_.size()), read(operands_.size());
    for (const ir::ValueId id : graph_.outputs) refused[kin(id)] = true;
    for (const ir::Node& node : graph_.nodes) {
      if (renames(node) || passes(node)) continue;
      const bool narrows = multiplies(node);
      if (narrows) written[kin(node.outputs[0])] = true;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] == ir::kNoValue) continue;
        (narrows && takes(node, i) ? read : refused)[kin(node.inputs[i])] = true;
      }
    }
    for (ir::ValueId id = 0; id < operands_.size(); ++id) {
      operands_[id].narrow = written[kin(id)] && read[kin(id)] && !refused[kin(id)];
    }
  }

 private:
  ir::ValueId kin(ir::ValueId id) const { return kin_[roots_[id]]; }

  // The greatest of bf16 values is one of them.
  bool passes(const ir::Node& node) const {
    if (!node.is("MaxPool") || node.outputs.size() != 1) return false;
    const Operand& x = operand(node.inputs[0]);
    return x.dtype == ir::DType::kF32 && x.extents.rank() <= 5 && x.elements() > 0;
  }

  // A product in bf16 that oneDNN runs: what the lowerings choose, for operands of these types.
  bool multiplies(const ir::Node& node) const {
    if (node.outputs.empty() || operand(node.outputs[0]).dtype != ir::DType::kF32) return false;
    if (operand(node.outputs[0]).elements() == 0 || operand(node.inputs[0]).elements() == 0) return false;
    if (node.is("Attention")) return attends_in_bf16(operand(node.inputs[0]).extents) && has_keys(node);
    if (!node.is("Linear") && !node.is("MatMul") && !node.is("Conv")) return false;
    const ir::Value& weight = graph_.values[node.inputs[1]];
    if (!weight.is_constant() || weight.constant->elements() == 0) return false;
    const ir::Extents &x = operand(node.inputs[0]).extents, &w = weight.constant->extents();
    if (node.is("Conv")) return x.rank() <= 5 && convolves_in_bf16(node, x, w);
    return w.rank() == 2;
  }

  bool has_keys(const ir::Node& node) const {
    if (node.inputs.size() > 1 && node.inputs[1] != ir::kNoValue && operand(node.inputs[1]).elements() == 0) {
      return false;
    }
    if (node.inputs.size() <= 3 || node.inputs[3] == ir::kNoValue) return true;
    const ir::DType mask = operand(node.inputs[3]).dtype;
    return mask == ir::DType::kBool || mask == ir::DType::kF32;
  }

  static bool takes(const ir::Node& node, size_t input) {
    return node.is("Attention") ? input < 3 : input == 0 || input == 3;
  }

  const Operand& operand(ir::ValueId id) const { return operands_[id]; }

  const ir::Graph& graph_;
  std::span<const ir::ValueId> roots_;
  std::vector<Operand>& operands_;
  std::vector<ir::ValueId> kin_;  // by root: the one with which it is narrow, or not
};

}  // namespace

void choose_narrow(const ir::Graph& graph, std::span<const ir::ValueId> roots,
                   std::vector<Operand>& operands) {
  Narrowing(graph, roots, operands).choose();
}

bool convolves_in_bf16(const ir::Node& conv, const ir::Extents& x, const ir::Extents& weight) {
  const int64_t group = conv.attributes.i64("group", 1);
  return group == 1 || (x.rank() <= 4 && group == x[1] && group == weight[0]);
}

bool attends_in_bf16(const ir::Extents& queries) {
  constexpr int64_t kFewestQueries = 16;
  return queries[1] >= kFewestQueries;
}

}  // namespace heddle::host
