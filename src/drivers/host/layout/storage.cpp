#include "drivers/host/layout/storage.h"

#include <algorithm>
#include <array>

#include "drivers/host/layout/channel_layout.h"
#include "drivers/host/layout/narrow_values.h"
#include "ir/transposed_window.h"
#include "plan/memory_plan.h"

namespace heddle::host {
namespace {

class Assignment {
 public:
  Assignment(const ir::Graph& graph, bool bf16) : graph_(graph), bf16_(bf16), root_(graph.values.size()) {
    storage_.operands.resize(graph.values.size());
    for (ir::ValueId id = 0; id < root_.size(); ++id) root_[id] = id;
  }

  Result<Storage> run() {
    HEDDLE_TRY(describe());
    if (bf16_) choose_narrow(graph_, root_, storage_.operands);
    place_given();
    place_outputs();
    place_arena();
    for (ir::ValueId id = 0; id < root_.size(); ++id) share(id);
    choose_layouts(graph_, storage_.operands);
    for (auto& [from, to] : storage_.copies) from = storage_.operands[from.offset];
    return std::move(storage_);
  }

 private:
  Status describe() {
    for (const ir::Node& node : graph_.nodes) {
      if (renames(node)) root_[node.outputs[0]] = root_[node.inputs[0]];
    }
    for (ir::ValueId id = 0; id < root_.size(); ++id) {
      const std::optional<ir::Extents> extents = graph_.type(id).extents();
      if (!extents) {
        return Status::internal("value '", graph_.values[id].name, "' is ", graph_.type(id),
                                " in a specialised graph; its shape should be numbers");
      }
      storage_.operands[id].dtype = graph_.type(id).dtype;
      storage_.operands[id].extents = *extents;
    }
    return {};
  }

  void place(ir::ValueId id, Operand::Location where, uint64_t offset) {
    storage_.operands[id].location = where;
    storage_.operands[id].offset = offset;
  }

  void place_given() {
    for (size_t i = 0; i < graph_.inputs.size(); ++i) place(graph_.inputs[i], Operand::Location::kInput, i);
    for (ir::ValueId id = 0; id < root_.size(); ++id) {
      if (!graph_.values[id].is_constant()) continue;
      place(id, Operand::Location::kConstant, 0);
      storage_.operands[id].constant = static_cast<const std::byte*>(graph_.values[id].constant->data());
    }
  }

  void place_outputs() {
    const std::vector<int> producers = graph_.producers();
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const ir::ValueId id = graph_.outputs[i], root = root_[id];
      if (producers[root] >= 0 && !storage_.operands[root].present()) {
        place(root, Operand::Location::kOutput, i);
        continue;
      }
      Operand to = storage_.operands[id];
      to.location = Operand::Location::kOutput;
      to.offset = i;
      Operand from;
      from.offset = id;  // becomes the operand of that value when all are placed
      storage_.copies.emplace_back(from, to);
    }
  }

  void place_arena() {
    std::vector<ir::ValueId> roots;
    std::vector<plan::Lifetime> lifetimes;
    std::vector<int> index(root_.size(), -1);
    for (int step = 0; step < static_cast<int>(graph_.nodes.size()); ++step) {
      const ir::Node& node = graph_.nodes[static_cast<size_t>(step)];
      for (ir::ValueId id : node.inputs) {
        if (id == ir::kNoValue || index[root_[id]] < 0) continue;
        lifetimes[static_cast<size_t>(index[root_[id]])].last = step;
      }
      if (renames(node)) continue;
      for (ir::ValueId id : node.outputs) {
        if (id == ir::kNoValue || storage_.operands[id].present()) continue;
        index[id] = static_cast<int>(roots.size());
        roots.push_back(id);
        const Operand& operand = storage_.operands[id];
        lifetimes.push_back({operand.bytes(), step, step});
      }
    }
    const plan::MemoryPlan plan = plan::plan_memory(lifetimes);
    for (size_t i = 0; i < roots.size(); ++i) place(roots[i], Operand::Location::kArena, plan.offsets[i]);
    storage_.arena_bytes = plan.bytes;
    storage_.arena_bytes_apart = plan.bytes_apart;
  }

  void share(ir::ValueId id) {
    if (root_[id] == id) return;
    const Operand& root = storage_.operands[root_[id]];
    Operand& operand = storage_.operands[id];
    operand.location = root.location;
    operand.offset = root.offset;
    operand.constant = root.constant;
  }

  const ir::Graph& graph_;
  const bool bf16_;
  std::vector<ir::ValueId> root_;  // the value whose location this one shares
  Storage storage_;
};

}  // namespace

bool renames(const ir::Node& node) {
  constexpr std::array<std::string_view, 5> kRenaming = {"Reshape", "Squeeze", "Unsqueeze", "Flatten",
                                                         "Identity"};
  return std::any_of(kRenaming.begin(), kRenaming.end(), [&](std::string_view op) { return node.is(op); });
}

bool counts_beyond_padding(const ir::Node& pool) {
  return pool.attributes.i64("count_include_pad") != 0 && pool.attributes.i64("ceil_mode") != 0;
}

bool goes_beyond_reach(const ir::Node& node, const ir::Extents& x, const ir::Extents& w,
                       const ir::Extents& y) {
  const auto kernel = w.span().subspan(2);
  const auto t = ir::TransposedWindow::of(node, kernel.size(), {kernel.begin(), kernel.end()});
  if (!t.ok()) return true;
  for (size_t i = 0; i < t->axes(); ++i) {
    const int64_t stride = t->window.strides[i], in = x[2 + i];
    const int64_t reached = (in - 1) * stride + t->window.reach(i) - t->begin(i, in);
    if (y[2 + i] - reached >= stride) return true;
  }
  return false;
}

Result<Storage> assign_storage(const ir::Graph& graph, bool bf16) { return Assignment(graph, bf16).run(); }

}  // namespace heddle::host
