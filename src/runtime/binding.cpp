#include "runtime/binding.h"

namespace heddle::runtime {

using device::MemoryKind;
using device::View;

namespace {

Status check_output(const Model& model, size_t i, const ir::ConcreteType& expected, const View& given) {
  const std::string& name = model.outputs()[i].name;
  if (given.dtype != expected.dtype || given.extents != expected.extents) {
    return Status::invalid("output '", name, "' of model '", model.name(), "' is given ", given.dtype,
                           given.extents, " to write to; it must be ", expected.dtype, expected.extents);
  }
  if (given.is_contiguous()) return {};
  return Status::invalid("output '", name, "' of model '", model.name(),
                         "' is given a strided array to write to; it must be ", "contiguous");
}

bool is_foreign(const device::Device& device, const View& view) {
  return view.buffer != nullptr && view.buffer->memory().maker() != device.maker();
}

// The bytes from a view's first to its last one.
struct Reach {
  uint64_t begin, end;
};
Reach reach_of(const View& view) {
  const auto size = static_cast<int64_t>(ir::size_of(view.dtype));
  int64_t before = 0, after = size;
  for (size_t i = 0; i < view.extents.rank(); ++i) {
    const int64_t last = (view.extents[i] - 1) * view.strides[i] * size;
    (last < 0 ? before : after) += last;
  }
  return {view.address() + static_cast<uint64_t>(before), view.address() + static_cast<uint64_t>(after)};
}

bool overlap(const View& a, const View& b) {
  if (a.bytes() == 0 || b.bytes() == 0) return false;
  const Reach x = reach_of(a), y = reach_of(b);
  return x.begin < y.end && y.begin < x.end;
}

}  // namespace

bool can_run_on(const device::Device& device, const View& view) {
  return view.is_contiguous() && view.address() % static_cast<uint64_t>(ir::size_of(view.dtype)) == 0 &&
         can_name(device, view) &&
         (view.buffer == nullptr || view.offset == 0 || device.traits().binding.offsets) &&
         (view.buffer == nullptr || view.buffer->memory().kind() == MemoryKind::device);
}

bool can_name(const device::Device& device, const View& view) {
  if (view.buffer != nullptr) return !is_foreign(device, view);
  const device::Binding& rule = device.traits().binding;
  return rule.caller_memory && view.bytes() >= rule.caller_bytes && view.is_contiguous() &&
         view.address() % rule.caller_alignment == 0;
}

bool may_write_beside(const device::Program& program, size_t output, const View& to, size_t input,
                      const View& from) {
  if (!overlap(from, to)) return true;
  const bool is_same = from.address() == to.address() && from.bytes() == to.bytes();
  return is_same && program.may_share(output, input);
}

Result<View> as_callers(const View& view, bool to_write, Deadline deadline) {
  if (view.buffer == nullptr) return view;
  if (view.buffer->host() == nullptr && view.bytes() != 0) {
    return Status::invalid("a tensor lies in memory of another device that the host cannot address; copy it ",
                           "to the host on a stream of its device first");
  }
  std::vector<device::Point> points;
  view.buffer->collect_waits(to_write, nullptr, points);
  for (const device::Point& point : points) HEDDLE_TRY(point.timeline->wait(point.value, deadline));
  if (to_write) {
    view.buffer->forget_writer();
  } else {
    HEDDLE_TRY(view.buffer->fault());
  }
  View callers = view;
  callers.callers = view.host();
  callers.buffer = nullptr;
  callers.offset = 0;
  return callers;
}

Status Binding::bind(Allocator& allocator, const device::Device& device, const Model& model,
                     const device::Program& program, const Call& call) {
  const auto& expected = program.outputs();
  if (!call.outputs.empty() && call.outputs.size() != expected.size()) {
    return Status::invalid("model '", model.name(), "' got ", call.outputs.size(),
                           " arrays to write its outputs to; it has ", expected.size(), " outputs");
  }
  arena_bytes_ = program.arena_bytes();
  host_reads_results_ = !call.results_on_device;
  run_inputs_.assign(call.inputs.begin(), call.inputs.end());
  for (size_t i = 0; i < call.inputs.size(); ++i) HEDDLE_TRY(bind_input(device, i, call.deadline));
  run_outputs_.reserve(expected.size());
  outputs_.reserve(expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!call.outputs.empty()) {
      HEDDLE_TRY(check_output(model, i, expected[i], call.outputs[i]));
      HEDDLE_TRY(is_in_the_way(device, program, call, i)
                     ? bind_apart(allocator, device, call.outputs[i])
                     : bind_given(device, call.outputs[i], call.deadline));
    } else if (call.results_in_slot) {
      const View made =
          View::contiguous(static_cast<std::byte*>(nullptr), expected[i].dtype, expected[i].extents);
      staged_.push_back({true, i, made.bytes(), made, true});
      run_outputs_.push_back(made);
    } else {
      HEDDLE_TRY(bind_fresh(allocator, device, expected[i]));
    }
  }
  return {};
}

Status Binding::bind_input(const device::Device& device, size_t index, Deadline deadline) {
  View& view = run_inputs_[index];
  if (view.buffer != nullptr && view.buffer->host() == nullptr) host_reads_results_ = false;
  if (can_run_on(device, view)) {
    names_caller_memory_ = names_caller_memory_ || view.buffer == nullptr;
    return {};
  }
  if (is_foreign(device, view)) {
    HEDDLE_TRY_ASSIGN(view, as_callers(view, false, deadline));
  }
  staged_.push_back({false, index, view.bytes(), view});
  return {};
}

Status Binding::bind_given(const device::Device& device, const View& given, Deadline deadline) {
  View view = given;
  if (is_foreign(device, view)) {
    HEDDLE_TRY_ASSIGN(view, as_callers(view, true, deadline));
    if (can_run_on(device, view)) foreign_.push_back(given.buffer);
  }
  if (can_run_on(device, view)) {
    names_caller_memory_ = names_caller_memory_ || view.buffer == nullptr;
  } else {
    staged_.push_back({true, run_outputs_.size(), view.bytes(), view});
  }
  outputs_.push_back(given);
  run_outputs_.push_back(std::move(view));
  return {};
}

// What is staged is read before the run, or written after it.
bool Binding::is_in_the_way(const device::Device& device, const device::Program& program, const Call& call,
                            size_t output) const {
  const View& to = call.outputs[output];
  if (!can_run_on(device, to)) return false;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const View& from = call.inputs[i];
    if (can_run_on(device, from) && !may_write_beside(program, output, to, i, from)) return true;
  }
  return false;
}

Status Binding::bind_apart(Allocator& allocator, const device::Device& device, const View& given) {
  HEDDLE_TRY_ASSIGN(Ref<device::Buffer> buffer, allocator.allocate(given.bytes(), MemoryKind::device));
  View view = View::contiguous(std::move(buffer), given.dtype, given.extents);
  if (!can_run_on(device, view)) return Status::internal("a run cannot write to memory of its own device");
  names_caller_memory_ = names_caller_memory_ || given.buffer == nullptr;
  apart_.push_back({run_outputs_.size(), given});
  outputs_.push_back(given);
  run_outputs_.push_back(std::move(view));
  return {};
}

Status Binding::bind_fresh(Allocator& allocator, const device::Device& device, const ir::ConcreteType& type) {
  const auto bytes = static_cast<uint64_t>(type.extents.elements() * ir::size_of(type.dtype));
  const MemoryKind kind = host_reads_results_ ? MemoryKind::staging : MemoryKind::device;
  HEDDLE_TRY_ASSIGN(Ref<device::Buffer> buffer, allocator.allocate(bytes, kind));
  View view = View::contiguous(std::move(buffer), type.dtype, type.extents);
  if (!can_run_on(device, view)) staged_.push_back({true, run_outputs_.size(), bytes, view});
  outputs_.push_back(view);
  run_outputs_.push_back(std::move(view));
  return {};
}

Status Binding::reserve(Slot& slot, Allocator::Callbacks callbacks) const {
  for (const Staged& each : staged_) {
    HEDDLE_TRY(each.output ? slot.reserve_output(each.index, each.bytes, callbacks)
                           : slot.reserve_input(each.index, each.bytes, callbacks));
  }
  return slot.reserve_arena(arena_bytes_, callbacks);
}

void Binding::stage(Ref<const device::Program> program, const Slot* slot, Ref<device::RowFaults> row_faults,
                    device::CommandList& list) {
  list.reserve(1 + 2 * staged_.size() + apart_.size());
  for (const Staged& each : staged_) {
    if (!each.output) stage_input(each, *slot, list);
  }
  for (const Staged& each : staged_) {
    if (!each.output) continue;
    View& view = run_outputs_[each.index];
    view = View::contiguous(slot->output(each.index).device, view.dtype, view.extents);
  }
  std::vector<View> made;
  for (const Apart& each : apart_) made.push_back(run_outputs_[each.output]);
  list.run(std::move(program), arena_bytes_ == 0 ? nullptr : slot->arena(), std::move(run_inputs_),
           std::move(run_outputs_), std::move(row_faults));
  for (size_t i = 0; i < apart_.size(); ++i) list.copy(std::move(made[i]), apart_[i].to);
  for (const Staged& each : staged_) {
    if (each.output) stage_output(each, *slot, list);
  }
}

void Binding::stage_input(const Staged& each, const Slot& slot, device::CommandList& list) {
  const Slot::Port& port = slot.input(each.index);
  View target = View::contiguous(port.device, each.given.dtype, each.given.extents);
  if (each.given.buffer != nullptr) {
    list.copy(each.given, target);
  } else {
    const View staging = View::contiguous(port.staging, each.given.dtype, each.given.extents);
    copy_view(each.given, staging);
    if (port.staging != port.device) list.copy(staging, target);
  }
  run_inputs_[each.index] = std::move(target);
}

void Binding::stage_output(const Staged& each, const Slot& slot, device::CommandList& list) {
  const Slot::Port& port = slot.output(each.index);
  const View made = View::contiguous(port.device, each.given.dtype, each.given.extents);
  if (each.given.buffer != nullptr) {
    list.copy(made, each.given);
    return;
  }
  View staging = View::contiguous(port.staging, each.given.dtype, each.given.extents);
  if (port.staging != port.device) list.copy(made, staging);
  if (each.stays) {
    outputs_.push_back(std::move(staging));
  } else {
    back_.push_back({std::move(staging), each.given});
  }
}

void Binding::mark_foreign(const device::Point& point, const Ref<device::RowFaults>& faults) const {
  for (const Ref<device::Buffer>& each : foreign_) each->mark_write(point, faults);
}

void Binding::copy_back() {
  for (const Back& each : back_) copy_view(each.from, each.to);
  back_.clear();
}

}  // namespace heddle::runtime
