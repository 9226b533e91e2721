#include "drivers/cuda/recorder.h"

#include <algorithm>
#include <cstring>
#include <variant>

#include "drivers/cuda/program.h"
#include "drivers/cuda/strides.h"
#include "drivers/cuda/waits.h"
#include "ir/tensor.h"

namespace heddle::cuda {
namespace {

// From here on the copy engines are faster than a kernel.
constexpr uint64_t kLargeCopy = 512 * 1024;

std::vector<int64_t> strides_of(const device::View& view) {
  return {view.strides.begin(), view.strides.end()};
}

// Calls stage what lies one element behind another: that allocates nothing.
MoveParams move_between(const device::View& from, const device::View& to) {
  if (from.is_contiguous() && to.is_contiguous()) return flat_move(to.extents.elements());
  return move_params(to.extents.span(), strides_of(from), strides_of(to));
}

}  // namespace

Recorder::Recorder(Ref<const OpenDevice> device, Graphs* graphs, StreamHandle stream,
                   Ref<CudaTimeline> timeline, uint64_t value)
    : device_(std::move(device)), graphs_(graphs), stream_(stream), timeline_(std::move(timeline)) {
  flight_.value = value;
}

// ---- what can be refused

Status Recorder::check(const device::CommandList& list) {
  for (const device::Command& command : list) {
    HEDDLE_TRY(std::visit([&](const auto& each) { return check_one(each); }, command));
  }
  if (flag_words_ > 0) {
    HEDDLE_TRY_ASSIGN(flight_.flags, timeline_->take_flags(flag_words_ * sizeof(uint32_t)));
  }
  return {};
}

Status Recorder::check_one(const device::Wait& wait) const {
  return wait.point.timeline == timeline_ ? Status() : until_enqueued(wait.point);
}

Status Recorder::check_one(const device::Run& run) {
  HEDDLE_TRY(run.program->check_operands(run));
  for (const device::View& view : run.inputs) HEDDLE_TRY(check_view(view));
  for (const device::View& view : run.outputs) HEDDLE_TRY(check_view(view));
  if (run.arena != nullptr && run.arena->memory().maker() != device_.get())
    return Status::invalid("the arena of a run is memory of another device");
  flag_words_ += static_cast<const CudaProgram&>(*run.program).lowered().flag_words;
  return {};
}

Status Recorder::check_one(const device::Copy& copy) const {
  if (copy.from.dtype != copy.to.dtype || !(copy.from.extents == copy.to.extents)) {
    return Status::invalid("a copy from ", copy.from.dtype, copy.from.extents, " to ", copy.to.dtype,
                           copy.to.extents, "; both have to be of one dtype and shape");
  }
  HEDDLE_TRY(check_view(copy.from));
  return check_view(copy.to);
}

Status Recorder::check_one(const device::Signal& signal) const {
  if (signal.event.handle != nullptr) return {};
  return Status::invalid("a command signals no event");
}

Status Recorder::check_view(const device::View& view) const {
  if (view.buffer == nullptr)
    return Status::invalid(
        "a view is in the caller's memory, which the GPU cannot name; it has to be staged");
  if (view.buffer->memory().maker() != device_.get())
    return Status::invalid("a view is in memory of another device");
  return {};
}

// ---- what CUDA does

Status Recorder::enqueue(const device::CommandList& list) {
  for (const device::Command& command : list) {
    HEDDLE_TRY(std::visit([&](const auto& each) { return enqueue_one(each); }, command));
  }
  return {};
}

Status Recorder::enqueue_one(const device::Wait& wait) {
  return wait.point.timeline == timeline_ ? Status() : hold(*device_, stream_, wait.point);
}

Status Recorder::enqueue_one(const device::Run& run) {
  const auto& program = static_cast<const CudaProgram&>(*run.program);
  const uint64_t begin = flags_used_ * sizeof(uint32_t);
  const Address flags = flight_.flags == nullptr ? 0 : flight_.flags->address() + begin;
  HEDDLE_TRY(graphs_ == nullptr ? program.launch(run, flags, stream_)
                                : graphs_->launch(program, run, flags, stream_));
  const auto* words =
      flight_.flags == nullptr ? nullptr : static_cast<const uint32_t*>(flight_.flags->host()) + flags_used_;
  flags_used_ += program.lowered().flag_words;
  if (run.row_faults != nullptr) flight_.runs.push_back({&run, &program, words});
  return {};
}

Status Recorder::enqueue_one(const device::Copy& copy) {
  if (copy.to.extents.elements() == 0) return {};
  const uint64_t bytes = copy.to.bytes();
  if (bytes >= kLargeCopy && copy.from.is_contiguous() && copy.to.is_contiguous()) {
    return device_->check(device_->api.copy(copy.to.address(), copy.from.address(), bytes, stream_),
                          "cuMemcpyAsync");
  }
  MoveParams params = move_between(copy.from, copy.to);
  params.from = copy.from.address();
  params.to = copy.to.address();
  return move(ir::size_of(copy.to.dtype), params);
}

Status Recorder::enqueue_one(const device::Fill& fill) {
  if (fill.to.extents.elements() == 0) return {};
  const ir::Tensor value = ir::Tensor::scalar(fill.to.dtype, fill.value);
  MoveParams params = move_between(fill.to, fill.to);
  params.to = fill.to.address();
  std::memcpy(&params.value, value.data(), static_cast<size_t>(value.bytes()));
  return move(ir::size_of(fill.to.dtype), params);
}

Status Recorder::enqueue_one(const device::Signal& signal) {
  return device_->check(device_->api.event_record(signal.event.handle, stream_), "cuEventRecord");
}

Status Recorder::move(int64_t size, const MoveParams& params) {
  const Kernel* kernel = device_->kernels.move_of(size);
  MoveParams copy = params;
  void* pointers[] = {&copy};
  return device_->check(
      device_->api.launch(kernel->function, blocks_for(params.count, device_->multiprocessors), 1, 1,
                          kThreads, 1, 1, 0, stream_, pointers, nullptr),
      kernel->name);
}

}  // namespace heddle::cuda
