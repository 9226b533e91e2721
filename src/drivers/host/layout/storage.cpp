#include "drivers/host/layout/storage.h"

#include "drivers/host/layout/channel_layout.h"
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

Result<Storage> assign_storage(const ir::Graph& graph, bool bf16) {
  Storage storage;
  std::vector<Operand>& operands = storage.operands;
  operands.resize(graph.values.size());
  HEDDLE_TRY(describe(graph, operands));
  if (bf16) choose_narrow(graph, plan::roots_of(graph), operands);
  const plan::Placement placed =
      plan::place_values(graph, [&](ir::ValueId id) { return operands[id].bytes(); });
  for (ir::ValueId id = 0; id < operands.size(); ++id) {
    operands[id].location = placed.places[id].kind;
    operands[id].offset = placed.places[id].offset;
    const std::optional<ir::Tensor>& constant = graph.values[placed.root[id]].constant;
    if (constant.has_value()) operands[id].constant = static_cast<const std::byte*>(constant->data());
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
