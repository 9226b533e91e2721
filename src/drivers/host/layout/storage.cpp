#include "drivers/host/layout/storage.h"

#include "drivers/host/layout/channel_layout.h"
#include "drivers/host/layout/half_operands.h"
#include "drivers/host/layout/narrow_values.h"
#include "ir/transposed_window.h"

namespace heddle::host {
namespace {

// Types of all values; internal when one is not static.
Status describe(const ir::Graph& graph, std::vector<Operand>& operands) {
  for (ir::ValueId id = 0; id < operands.size(); ++id) {
    const std::optional<ir::Extents> extents = graph.type(id).extents();
    if (!extents) {
      return Status::internal("value '", graph.values[id].name, "' is ", graph.type(id),
                              " in a specialised graph; its shape should be numbers");
    }
    operands[id].dtype = graph.type(id).dtype;
    operands[id].extents = *extents;
  }
  return {};
}

}  // namespace

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

bool falls_away(const ir::Node& node, const Storage& storage) {
  if (renames(node)) return true;
  const ir::ValueId made = node.outputs.empty() ? ir::kNoValue : node.outputs[0];
  return made != ir::kNoValue && storage.operands[made].half.has_value();
}

Result<Storage> assign_storage(const ir::Graph& graph, const StorageRules& rules) {
  Storage storage;
  std::vector<Operand>& operands = storage.operands;
  operands.resize(graph.values.size());
  HEDDLE_TRY(describe(graph, operands));
  if (rules.bf16) choose_narrow(graph, plan::roots_of(graph), operands);
  std::vector<ir::ValueId> cast_from(graph.values.size(), ir::kNoValue);
  if (rules.half_operands) cast_from = half_operands(graph, rules.multiplies_bf16);
  const plan::Placement placed = plan::place_values(
      graph, [&](ir::ValueId id) { return cast_from[id] == ir::kNoValue ? operands[id].bytes() : 0; });
  storage.root = placed.root;
  for (ir::ValueId id = 0; id < operands.size(); ++id) {
    operands[id].location = placed.places[id].kind;
    operands[id].offset = placed.places[id].offset;
    const std::optional<ir::Tensor>& constant = graph.values[placed.root[id]].constant;
    if (constant.has_value()) operands[id].constant = static_cast<const std::byte*>(constant->data());
  }
  for (ir::ValueId id = 0; id < operands.size(); ++id) {
    if (cast_from[id] == ir::kNoValue) continue;
    operands[id].location = operands[cast_from[id]].location;
    operands[id].offset = operands[cast_from[id]].offset;
    operands[id].half = operands[cast_from[id]].dtype;
    storage.root[id] = storage.root[cast_from[id]];
  }
  choose_layouts(graph, operands);
  for (const plan::Placement::Copy& copy : placed.copies) {
    Operand to = operands[copy.from];
    to.location = Operand::Location::kOutput;
    to.offset = copy.output;
    storage.copies.emplace_back(operands[copy.from], to);
  }
  storage.arena_bytes = placed.arena_bytes;
  storage.arena_bytes_apart = placed.arena_bytes_apart;
  return storage;
}

}  // namespace heddle::host
