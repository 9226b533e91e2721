#include "runtime/binding.h"

namespace heddle::runtime {

using device::View;

namespace {

Status check_output(const Model& model, size_t i, const device::ConcreteType& expected, const View& given) {
  const std::string& name = model.outputs()[i].name;
  if (given.dtype != expected.dtype || given.extents != expected.extents) {
    return Status::invalid("output '", name, "' of model '", model.name(), "' is given ", given.dtype,
                           given.extents, " to write to; it must be ", expected.dtype, expected.extents);
  }
  if (given.is_contiguous()) return {};
  return Status::invalid("output '", name, "' of model '", model.name(),
                         "' is given a strided array to write to; it must be ", "contiguous");
}

}  // namespace

Result<Binding> Binding::make(Allocator& allocator, const device::Device& device, const Model& model,
                              const device::Program& program, std::span<const View> inputs,
                              std::span<const View> outputs) {
  const bool in_place = device.traits().binds_caller_memory;
  Binding binding;
  HEDDLE_TRY(binding.bind_inputs(allocator, in_place, inputs));
  HEDDLE_TRY(binding.bind_outputs(allocator, in_place, model, program, outputs));
  return binding;
}

Result<View> Binding::fresh(Allocator& allocator, ir::DType dtype, const ir::Extents& extents) {
  HEDDLE_TRY_ASSIGN(Ref<device::Buffer> buffer,
                    allocator.allocate(static_cast<uint64_t>(extents.elements() * ir::size_of(dtype))));
  std::byte* const data = buffer->host();
  return View::contiguous(std::move(buffer), data, dtype, extents);
}

Status Binding::bind_inputs(Allocator& allocator, bool in_place, std::span<const View> inputs) {
  run_inputs_.assign(inputs.begin(), inputs.end());
  for (View& input : run_inputs_) {
    if (input.buffer != nullptr) continue;
    uses_caller_memory_ = true;
    if (in_place) continue;
    HEDDLE_TRY_ASSIGN(View staged, fresh(allocator, input.dtype, input.extents));
    before_.push_back({input, staged});
    input = std::move(staged);
  }
  return {};
}

Status Binding::bind_outputs(Allocator& allocator, bool in_place, const Model& model,
                             const device::Program& program, std::span<const View> given) {
  const auto& expected = program.outputs();
  if (!given.empty() && given.size() != expected.size()) {
    return Status::invalid("model '", model.name(), "' got ", given.size(),
                           " arrays to write its outputs to; it has ", expected.size(), " outputs");
  }
  run_outputs_.reserve(expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const bool is_given = !given.empty();
    if (is_given) HEDDLE_TRY(check_output(model, i, expected[i], given[i]));
    const bool callers = is_given && given[i].buffer == nullptr;
    uses_caller_memory_ = uses_caller_memory_ || callers;
    if (is_given && (!callers || in_place)) {
      run_outputs_.push_back(given[i]);
      continue;
    }
    HEDDLE_TRY_ASSIGN(View made, fresh(allocator, expected[i].dtype, expected[i].extents));
    if (callers) after_.push_back({made, given[i]});
    run_outputs_.push_back(std::move(made));
  }
  if (given.empty()) {
    outputs_ = run_outputs_;
  } else {
    outputs_.assign(given.begin(), given.end());
  }
  return {};
}

device::CommandList Binding::commands(Ref<const device::Program> program, device::Slot& slot,
                                      Ref<device::RowFaults> row_faults) && {
  device::CommandList list;
  list.reserve(1 + before_.size() + after_.size());
  for (Staged& copy : before_) list.copy(std::move(copy.from), std::move(copy.to));
  list.run(std::move(program), slot, std::move(run_inputs_), std::move(run_outputs_), std::move(row_faults));
  for (Staged& copy : after_) list.copy(std::move(copy.from), std::move(copy.to));
  return list;
}

}  // namespace heddle::runtime
