#include "device/program.h"

#include <algorithm>

#include "device/command_list.h"
#include "device/row_faults.h"
#include "plan/specialize.h"

namespace heddle::device {
namespace {

// At most kMaxBytes each: a sum of 64 bits holds those of any graph that fits into memory.
uint64_t bytes_of(const ir::TensorType& type) {
  return static_cast<uint64_t>(type.extents()->elements() * ir::size_of(type.dtype));
}

Status check_views(std::span<const View> views, const std::vector<ConcreteType>& types, const char* what) {
  if (views.size() != types.size()) {
    return Status::invalid("the run has ", views.size(), " ", what, "s; the program takes ", types.size());
  }
  for (size_t i = 0; i < views.size(); ++i) {
    if (views[i].dtype == types[i].dtype && views[i].extents == types[i].extents) continue;
    return Status::invalid(what, " ", i, " is ", views[i].dtype, views[i].extents,
                           "; the program was compiled for ", types[i].dtype, types[i].extents);
  }
  return {};
}

Status check_rows(std::span<const View> views, int64_t rows, const char* what) {
  for (size_t i = 0; i < views.size(); ++i) {
    const ir::Extents& extents = views[i].extents;
    // Each row may have several entries of an output: a reshape has made them.
    if (extents.rank() > 0 && extents[0] % rows == 0) continue;
    return Status::invalid("the faults of ", rows, " rows are asked for; ", what, " ", i, " is ", extents,
                           ", whose axis 0 has to hold them");
  }
  return {};
}

}  // namespace

std::vector<ConcreteType> concrete_types(const ir::Graph& specialised, const std::vector<ir::ValueId>& ids) {
  std::vector<ConcreteType> types;
  for (const ir::ValueId id : ids)
    types.push_back({specialised.type(id).dtype, *specialised.type(id).extents()});
  return types;
}

void Program::take_operands(const ir::Graph& specialised) {
  inputs_ = concrete_types(specialised, specialised.inputs);
  outputs_ = concrete_types(specialised, specialised.outputs);
}

Status Program::check_operands(const Run& run) const {
  HEDDLE_TRY(check_views(run.inputs, inputs_, "input"));
  HEDDLE_TRY(check_views(run.outputs, outputs_, "output"));
  const int64_t rows = run.row_faults == nullptr ? 0 : run.row_faults->rows();
  if (rows == 0) return {};
  HEDDLE_TRY(check_rows(run.inputs, rows, "input"));
  return check_rows(run.outputs, rows, "output");
}

Result<Ref<const Program>> Module::compile(std::span<const ir::Extents> inputs, uint64_t bytes_max,
                                           NoLocksHeld none) const {
  HEDDLE_TRY_ASSIGN(const ir::Graph specialised, plan::specialize(graph(), inputs, bytes_max));
  return lower(specialised, bytes_max, none);
}

Result<ProgramPlan> Module::plan(std::span<const ir::Extents> inputs, uint64_t bytes_max,
                                 NoLocksHeld none) const {
  HEDDLE_TRY_ASSIGN(const ir::Graph specialised, plan::specialize(graph(), inputs, bytes_max));
  return describe(specialised, bytes_max, none);
}

Result<ProgramPlan> Module::describe(const ir::Graph&, uint64_t, NoLocksHeld) const {
  return Status::unsupported("this device's driver does not say what a program would do");
}

Status check_memory(const ir::Graph& specialised, uint64_t arena_bytes, uint64_t weight_bytes,
                    uint64_t bytes_max) {
  uint64_t outputs = 0;
  for (const ir::ValueId id : specialised.outputs) outputs += bytes_of(specialised.type(id));
  const uint64_t needed = arena_bytes + weight_bytes + outputs;
  if (needed <= bytes_max) return {};
  const ir::Node* largest = nullptr;
  uint64_t most = 0;
  for (const ir::Node& node : specialised.nodes) {
    for (const ir::ValueId id : node.outputs) {
      if (id == ir::kNoValue || bytes_of(specialised.type(id)) <= most) continue;
      most = bytes_of(specialised.type(id));
      largest = &node;
    }
  }
  return Status::exhausted(
      "a run needs ", needed, " bytes: ", weight_bytes, " of weights, ", arena_bytes, " between nodes, ",
      outputs, " of outputs",
      largest == nullptr ? std::string() : text(" (the most, ", most, ", by ", largest->describe(), ")"),
      "; the memory limit is ", bytes_max);
}

}  // namespace heddle::device
