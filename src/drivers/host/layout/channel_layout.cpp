#include "drivers/host/layout/channel_layout.h"

#include <algorithm>
#include <utility>

#include "drivers/host/layout/storage.h"
#include "ir/op.h"

namespace heddle::host {
namespace {

bool is_elementwise(const ir::Node& node) {
  const auto family = elementwise_lowerings();
  return !renames(node) && std::any_of(family.begin(), family.end(),
                                       [&](const LoweringEntry& entry) { return node.is(entry.op); });
}

bool is_follower(const ir::Node& node) {
  return is_elementwise(node) || node.is("Concat") || node.is("Split") || node.is("Resize");
}

// Operands that hold data in the order of axes; the others are numbers.
size_t data_inputs(const ir::Node& node) {
  return node.is("Split") || node.is("Resize") ? 1 : node.inputs.size();
}

bool same_bytes(const ir::Extents& extents, size_t rank) {
  if (extents.rank() > rank) return false;
  const size_t lead = rank - extents.rank();
  const auto extent = [&](size_t axis) { return axis < lead ? 1 : extents[axis - lead]; };
  int64_t places = 1;
  for (size_t i = 2; i < rank; ++i) places *= extent(i);
  return places == 1 || extent(1) == 1;
}

class Layouts {
 public:
  Layouts(const ir::Graph& graph, std::vector<Operand>& operands) : graph_(graph), operands_(operands) {}

  void choose() {
    const std::vector<int> producers = graph_.producers();
    const std::vector<std::vector<int>> consumers = graph_.consumers();
    const auto node_at = [&](int at) -> const ir::Node& { return graph_.nodes[static_cast<size_t>(at)]; };
    const auto handles = [&](const ir::Node& node) { return has_windows(node) || can_follow(node); };
    for (ir::ValueId id = 0; id < operands_.size(); ++id) {
      Operand& operand = operands_[id];
      const size_t rank = operand.extents.rank();
      if (operand.dtype != ir::DType::kF32 || rank < 3 || rank > 5 || operand.elements() == 0) continue;
      if (producers[id] < 0 || !handles(node_at(producers[id])) || consumers[id].empty()) continue;
      operand.channels_last = std::all_of(consumers[id].begin(), consumers[id].end(), [&](int at) {
        return at >= 0 && handles(node_at(at)) && !is_weight(node_at(at), id);
      });
    }
    while (settle()) {
    }
  }

 private:
  // Followers whose values do not all lie with channels last make them all lie plain. True when one changed.
  bool settle() {
    bool changed = false;
    for (const ir::Node& node : graph_.nodes) {
      if (!can_follow(node)) continue;
      const size_t rank = operands_[node.outputs[0]].extents.rank();
      std::vector<ir::ValueId> mine;
      bool all = true;
      for (ir::ValueId id : node.outputs) {
        if (id == ir::kNoValue) continue;
        mine.push_back(id);
        all = all && operands_[id].channels_last && operands_[id].extents.rank() == rank;
      }
      for (size_t i = 0; i < data_inputs(node); ++i) {
        const ir::ValueId id = node.inputs[i];
        if (id == ir::kNoValue) continue;
        if (same_bytes(operands_[id].extents, rank)) {
          // Those of its plain form: the last of its own axes may be others.
          if (operands_[id].extents.rank() != rank)
            changed = std::exchange(operands_[id].channels_last, false) || changed;
          continue;
        }
        mine.push_back(id);
        all = all && operands_[id].channels_last && operands_[id].extents.rank() == rank;
      }
      if (all) continue;
      for (ir::ValueId id : mine) changed = std::exchange(operands_[id].channels_last, false) || changed;
    }
    return changed;
  }

  // It is read as it is described, whichever node made it.
  static bool is_weight(const ir::Node& node, ir::ValueId id) {
    return (node.is("Conv") || node.is("ConvTranspose")) && node.inputs[1] == id;
  }

  bool can_follow(const ir::Node& node) const {
    if (!is_follower(node)) return false;
    if (!node.is("Resize")) return true;
    // What the reference runs lies plain.
    return node.attributes.str("coordinate_transformation_mode") != "tf_crop_and_resize" &&
           operands_[node.inputs[0]].extents != operands_[node.outputs[0]].extents;
  }

  // Runs with channels last. The rest of these operators runs the reference, which does not.
  bool has_windows(const ir::Node& node) const {
    if (node.inputs.empty() || operands_[node.inputs[0]].elements() == 0) return false;
    if (node.is("Conv") || node.is("ConvTranspose")) {
      if (operands_[node.inputs[1]].elements() == 0) return false;
      const auto extents = [&](ir::ValueId id) { return operands_[id].extents; };
      return node.is("Conv") || !goes_beyond_reach(node, extents(node.inputs[0]), extents(node.inputs[1]),
                                                   extents(node.outputs[0]));
    }
    if (node.is("AveragePool")) return !counts_beyond_padding(node);
    if (node.is("MaxPool")) return node.outputs.size() == 1;  // indices may need the reference
    return node.is("GlobalAveragePool") || node.is("GlobalMaxPool");
  }

  const ir::Graph& graph_;
  std::vector<Operand>& operands_;
};

Operand turned(Operand operand, size_t rank) {
  std::vector<int64_t> plain(rank - operand.extents.rank(), 1);
  plain.insert(plain.end(), operand.extents.begin(), operand.extents.end());
  std::rotate(plain.begin() + 1, plain.begin() + 2, plain.end());
  ir::Extents extents;
  for (int64_t extent : plain) extents.push_back(extent);
  operand.extents = extents;
  operand.channels_last = false;
  return operand;
}

}  // namespace

void choose_layouts(const ir::Graph& graph, std::vector<Operand>& operands) {
  Layouts(graph, operands).choose();
}

size_t turned_axis(size_t axis, size_t rank) { return axis == 0 ? 0 : axis == 1 ? rank - 1 : axis - 1; }

bool follows_channels_last(const Lowering& lowering) {
  return is_follower(lowering.node) && lowering.outputs[0].channels_last;
}

Follower in_order_of_bytes(const Lowering& lowering) {
  const size_t rank = lowering.outputs[0].extents.rank();
  Follower out{lowering.node, lowering.inputs, lowering.outputs};
  for (size_t i = 0; i < data_inputs(out.node); ++i) {
    if (out.inputs[i].present()) out.inputs[i] = turned(out.inputs[i], rank);
  }
  for (Operand& output : out.outputs) {
    if (output.present()) output = turned(output, rank);
  }
  if (out.node.is("Concat") || out.node.is("Split")) {
    const int64_t given = out.node.attributes.i64("axis");
    const auto axis = static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(rank) : given);
    out.node.attributes.set("axis", static_cast<int64_t>(turned_axis(axis, rank)));
  }
  return out;
}

}  // namespace heddle::host
