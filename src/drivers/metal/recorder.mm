#include "drivers/metal/recorder.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/no_memory.h"
#include "device/buffer.h"
#include "drivers/metal/failure.h"
#include "drivers/metal/foreign_timeline.h"
#include "drivers/metal/matrix_copy.h"
#include "drivers/metal/memory.h"
#include "drivers/metal/program.h"
#include "drivers/metal/watched_commands.h"
#include "ir/tensor.h"

namespace heddle::metal {
namespace {

// A wait ends early where its thread is asked to end it, or finds no memory.
void await_on_host(const device::Point& point) {
  if (point.timeline == nullptr) return;
  device::Timeline& timeline = *point.timeline;
  while (!point.done() && !timeline.failed() && timeline.is_ours())
    static_cast<void>(or_exhausted("a wait", [&] { return timeline.wait(point.value, Deadline::never()); }));
}

uint64_t page_bytes() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

void await_on_host(const device::CommandList& list, const device::Timeline* own) {
  for (const device::Command& command : list) {
    const auto* const wait = std::get_if<device::Wait>(&command);
    if (wait != nullptr && wait->point.timeline.get() != own) await_on_host(wait->point);
  }
}

Recorder::Recorder(const OpenDevice& open, const Ref<MetalTimeline>& timeline, uint64_t value,
                   Ref<Flight> flight, std::vector<device::Point>& owed)
    : open_(open), timeline_(timeline), value_(value), flight_(std::move(flight)), owed_(owed) {}

Status Recorder::begin(id<MTLCommandQueue> queue) {
  const id<MTLCommandBuffer> first = [queue commandBuffer];
  if (first == nil) return Status::device_lost("Metal gives no command buffer");
  commands_ = watched_commands(first, *flight_);
  if (commands_ == nil) return Status::device_lost("MPSGraph gives no command buffer");
  // Nothing runs any more of one that has failed.
  for (const device::Point& point : owed_) static_cast<void>(record(device::Wait{point}));
  return {};
}

Status Recorder::record(const device::Wait& wait) {
  if (wait.point.timeline == timeline_) return {};
  if (const auto* foreign = dynamic_cast<const ForeignTimeline*>(wait.point.timeline.get())) {
    if (commands_ == nil) {
      owe(wait.point);
      flight_->wait_for_event(foreign->event(), foreign->event_value());
    } else {
      [current() encodeWaitForEvent:foreign->event() value:foreign->event_value()];
    }
    return {};
  }
  const auto other = std::dynamic_pointer_cast<MetalTimeline>(wait.point.timeline);
  if (other == nullptr) {  // of another driver: Metal cannot wait for it
    if (wait.point.done()) return {};
    const Status status = wait.point.timeline->wait(wait.point.value, Deadline::never());
    if (status.ok()) return {};
    return Status::unavailable("a submission that this one waits for has failed: ", status.message());
  }
  if (wait.point.done()) return {};
  if (other->failed()) {
    return Status::unavailable("a submission that this one waits for has failed: ",
                               other->failure().message());
  }
  if (commands_ == nil) {
    owe(wait.point);
  } else {
    [current() encodeWaitForEvent:other->event() value:wait.point.value];
  }
  flight_->wait_for(other, wait.point.value);
  return {};
}

void Recorder::owe(const device::Point& point) {
  std::erase_if(owed_, [](const device::Point& each) { return each.done(); });
  const auto found = std::ranges::find(owed_, point.timeline, &device::Point::timeline);
  if (found == owed_.end()) {
    owed_.push_back(point);
  } else {
    found->value = std::max(found->value, point.value);
  }
}

Status Recorder::record(const device::Signal& signal) {
  if (signal.event.handle == nullptr) return Status::invalid("a command signals no shared event");
  const id<MTLSharedEvent> event = shared_event_of(signal.event);
  [current() encodeSignalEvent:event value:signal.event.value];
  flight_->signals(event, signal.event.value);
  return {};
}

// ---- where views lie

Result<Recorder::Window> Recorder::window(const device::View& view) {
  if (view.buffer == nullptr) {
    HEDDLE_TRY_ASSIGN(const id<MTLBuffer> mapped, map(view));
    return Window{mapped, 0, view.strides};
  }
  const device::Memory& memory = view.buffer->memory();
  if (memory.maker() != &open_) return Status::invalid("a view is in memory of another device");
  const int64_t size = ir::size_of(view.dtype);
  const auto offset = static_cast<int64_t>(view.offset);
  if (offset % size != 0) {
    return Status::invalid("a view of ", view.dtype, " begins ", offset,
                           " bytes into its buffer; it must be at a multiple of ", size);
  }
  return Window{static_cast<const MetalMemory&>(memory).buffer(), offset / size, view.strides};
}

Result<id<MTLBuffer>> Recorder::map(const device::View& view) {
  const uint64_t page = page_bytes(), bytes = view.bytes();
  if (reinterpret_cast<uintptr_t>(view.callers) % page != 0 || !view.is_contiguous()) {
    return Status::invalid("memory of the caller is named that Metal cannot map: it must be contiguous from ",
                           "the begin of a page of ", page, " bytes");
  }
  // Whole pages: what lies behind the elements in the last one is mapped, and not touched.
  auto buffer = Owned<id<MTLBuffer>>::adopt([open_.device.get()
      newBufferWithBytesNoCopy:view.callers
                        length:(bytes + page - 1) / page * page
                       options:MTLResourceStorageModeShared
                   deallocator:nil]);
  if (!buffer) return Status::exhausted("Metal cannot map ", bytes, " bytes of the caller's memory");
  if (open_.options.defences.own_strided_copies) {
    flight_->keep(buffer);
  } else {
    [[buffer.get() retain] autorelease];
  }
  return buffer.get();
}

// MPSGraph reads and writes from a buffer's begin.
Result<id<MTLBuffer>> Recorder::whole_buffer(const device::View& operand) {
  HEDDLE_TRY_ASSIGN(const Window at, window(operand));
  if (at.start == 0 && operand.is_contiguous()) return at.buffer;
  return Status::invalid("an operand of a run begins ", operand.offset,
                         " bytes into its buffer, or is strided; Metal takes whole buffers");
}

// ---- runs

Status Recorder::record(const device::Run& run) {
  const auto& program = static_cast<const MetalProgram&>(*run.program);
  HEDDLE_TRY(program.check_operands(run));
  if (!program.runs_nothing()) {
    std::vector<id<MTLBuffer>> inputs(run.inputs.size(), nil), outputs, words;
    for (const Feed& feed : program.feeds()) {
      if (feed.kind != Feed::Kind::input) continue;
      HEDDLE_TRY_ASSIGN(inputs[feed.index], whole_buffer(run.inputs[feed.index]));
    }
    for (const size_t index : program.written()) {
      HEDDLE_TRY_ASSIGN(const id<MTLBuffer> buffer, whole_buffer(run.outputs[index]));
      outputs.push_back(buffer);
    }
    for (size_t i = 0; i < program.checks(); ++i) {
      HEDDLE_TRY_ASSIGN(const id<MTLBuffer> buffer,
                        flight_->stage(static_cast<uint64_t>(program.check(i).flags) * sizeof(int32_t)));
      words.push_back(buffer);
    }
    const id<MTLCommandBuffer> before = current();
    const Status status = program.encode(commands_, inputs, outputs, words);
    // Should MPSGraph have gone on with another command buffer by a way that is not watched.
    if (current() != before) flight_->add_earlier(before);
    HEDDLE_TRY(status);
    flight_->check({&run, &program, std::move(words)});
  } else {
    flight_->check({&run, &program, {}});
  }
  return {};
}

// ---- copies and fills

Status Recorder::record(const device::Copy& copy) {
  if (copy.from.dtype != copy.to.dtype || !(copy.from.extents == copy.to.extents)) {
    return Status::invalid("a copy from ", copy.from.dtype, copy.from.extents, " to ", copy.to.dtype,
                           copy.to.extents, "; both have to be of one dtype and shape");
  }
  if (copy.to.extents.elements() == 0) return {};
  HEDDLE_TRY_ASSIGN(const Window from, window(copy.from));
  HEDDLE_TRY_ASSIGN(const Window to, window(copy.to));
  return copy_elements(from, to, copy.from.dtype, copy.from.extents);
}

Status Recorder::record(const device::Fill& fill) {
  if (fill.to.extents.elements() == 0) return {};
  HEDDLE_TRY_ASSIGN(const Window to, window(fill.to));
  const ir::Tensor value = ir::Tensor::scalar(fill.to.dtype, fill.value);
  uint64_t bits = 0;
  std::memcpy(&bits, value.data(), static_cast<size_t>(value.bytes()));
  return walk(open_.kernels.fill(value.bytes()), nil, bits, nullptr, to, fill.to.extents);
}

Status Recorder::copy_elements(const Window& from, const Window& to, ir::DType dtype,
                               const ir::Extents& extents) {
  const int64_t size = ir::size_of(dtype);
  const auto bytes = static_cast<uint64_t>(extents.elements() * size);
  const auto source = static_cast<uint64_t>(from.start * size),
             target = static_cast<uint64_t>(to.start * size);
  const ir::Extents dense = device::contiguous_strides(extents);
  // A blit takes whole words only.
  if (from.strides == dense && to.strides == dense && (bytes | source | target) % 4 == 0) {
    const id<MTLBlitCommandEncoder> blit = [current() blitCommandEncoder];
    const auto most = static_cast<uint64_t>(open_.limits.blit_bytes);
    for (uint64_t begin = 0; begin < bytes; begin += std::min(most, bytes - begin)) {
      [blit copyFromBuffer:from.buffer
               sourceOffset:source + begin
                   toBuffer:to.buffer
          destinationOffset:target + begin
                       size:std::min(most, bytes - begin)];
    }
    [blit endEncoding];
    return {};
  }
  if (!open_.options.defences.own_strided_copies &&
      copy_by_mps(open_.device.get(), current(), {from.buffer, source, from.strides},
                  {to.buffer, target, to.strides}, dtype, extents))
    return {};
  return walk(open_.kernels.copy(size), from.buffer, 0, &from, to, extents);
}

Status Recorder::walk(id<MTLComputePipelineState> kernel, id<MTLBuffer> from, uint64_t bits,
                      const Window* source, const Window& to, const ir::Extents& extents) {
  const int64_t elements = extents.elements();
  if (elements > UINT32_MAX) {
    return Status::unsupported("a strided copy or fill of ", elements, " elements; Metal takes at most ",
                               uint64_t{UINT32_MAX});
  }
  Walk walk{};
  walk.rank = static_cast<uint32_t>(extents.rank());
  walk.to_start = to.start;
  walk.from_start = source == nullptr ? 0 : source->start;
  for (size_t axis = 0; axis < extents.rank(); ++axis) {
    walk.extents[axis] = static_cast<uint32_t>(extents[axis]);
    walk.to[axis] = to.strides[axis];
    if (source != nullptr) walk.from[axis] = source->strides[axis];
  }
  const id<MTLComputeCommandEncoder> encoder = [current() computeCommandEncoder];
  [encoder setComputePipelineState:kernel];
  if (source == nullptr) {
    [encoder setBytes:&bits length:sizeof bits atIndex:0];
  } else {
    [encoder setBuffer:from offset:0 atIndex:0];
  }
  [encoder setBuffer:to.buffer offset:0 atIndex:1];
  [encoder setBytes:&walk length:sizeof walk atIndex:2];
  const auto width =
      std::min<NSUInteger>([kernel maxTotalThreadsPerThreadgroup], static_cast<NSUInteger>(elements));
  [encoder dispatchThreads:MTLSizeMake(static_cast<NSUInteger>(elements), 1, 1)
      threadsPerThreadgroup:MTLSizeMake(width, 1, 1)];
  [encoder endEncoding];
  return {};
}

// ---- the end

void Recorder::send() {
  owed_.clear();
  const id<MTLCommandBuffer> last = current();
  [last encodeSignalEvent:timeline_->event() value:value_];
  const Ref<Flight> flight = flight_;  // a member would be captured as `this`
  [last addCompletedHandler:^(id<MTLCommandBuffer> buffer) {
    flight->completed(buffer);
  }];
  [last commit];
  if (open_.options.defences.handlers_end_submissions) return;
  [last waitUntilCompleted];
  flight_->waited_for();
}

Status Recorder::commit() {
  send();
  return {};
}

Status Recorder::drop(Status why, id<MTLCommandQueue> queue, const device::CommandList& list) {
  if (flight_->has_earlier()) {
    flight_->spoil(or_exhausted("a submission that was encoded in part", [&] {
      return Status::device_lost("a submission could not be encoded to its end: ", why.message());
    }));
    send();
    return {};
  }
  flight_->keep_nothing_but_waits();
  commands_ = nil;
  const Status recorded = or_exhausted("what a submission waits for", [&] {
    if (queue != nil) static_cast<void>(begin(queue));
    for (const device::Command& command : list) {
      if (const auto* const wait = std::get_if<device::Wait>(&command)) static_cast<void>(record(*wait));
    }
    return Status();
  });
  if (!recorded.ok()) {
    for (const device::Point& point : owed_) await_on_host(point);
    await_on_host(list, timeline_.get());
  }
  if (commands_ == nil) {
    timeline_->has_no_commands(value_);
    flight_->wait_without_commands();
  } else {
    send();
  }
  return why;
}

}  // namespace heddle::metal
