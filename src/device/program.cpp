#include "device/program.h"

#include <algorithm>

#include "device/command_list.h"
#include "device/row_faults.h"
#include "plan/specialize.h"

namespace heddle::device {
namespace {

Status check_views(std::span<const View> views, const std::vector<ir::ConcreteType>& types,
                   const char* what) {
  if (views.size() != types.size()) {
    return Status::invalid("the run has ", views.size(), " ", what, "s; the program takes ", types.size());
  }
  for (size_t i = 0; i < views.size(); ++i) {
    const View& view = views[i];
    if (view.dtype != types[i].dtype || view.extents != types[i].extents) {
      return Status::invalid(what, " ", i, " is ", view.dtype, view.extents,
                             "; the program was compiled for ", types[i].dtype, types[i].extents);
    }
    if (view.is_contiguous() && view.address() % static_cast<uint64_t>(ir::size_of(view.dtype)) == 0)
      continue;
    return Status::invalid(what, " ", i, " is strided, or not aligned to its element; a run takes neither");
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

void Program::take_operands(const ir::Graph& specialised) {
  inputs_ = ir::concrete_types(specialised, specialised.inputs);
  outputs_ = ir::concrete_types(specialised, specialised.outputs);
}

Status Program::check_operands(const Run& run) const {
  HEDDLE_TRY(check_views(run.inputs, inputs_, "input"));
  HEDDLE_TRY(check_views(run.outputs, outputs_, "output"));
  if (arena_bytes_ > (run.arena == nullptr ? 0 : run.arena->bytes()))
    return Status::invalid("the run needs an arena of ", arena_bytes_, " bytes");
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

Result<plan::ProgramPlan> Module::plan(std::span<const ir::Extents> inputs, uint64_t bytes_max,
                                       NoLocksHeld none) const {
  HEDDLE_TRY_ASSIGN(const ir::Graph specialised, plan::specialize(graph(), inputs, bytes_max));
  return describe(specialised, bytes_max, none);
}

Result<plan::ProgramPlan> Module::describe(const ir::Graph&, uint64_t, NoLocksHeld) const {
  return Status::unsupported("this device's driver does not say what a program would do");
}

}  // namespace heddle::device
