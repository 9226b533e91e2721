// recorder.h: a command list into one command buffer. A local of MetalQueue::submit(): encoders live inside
// its functions, and nothing returns them or the command buffer.
//
//   What       begin(), the commands in order, then commit() or drop(). Views are bound where they lie: in
//              memory of the device, or in large page-aligned memory of the caller, which is mapped.
//   Order      Buffers are tracked by Metal, so commands of one queue see what those before wrote; weights
//              are not, and never written.
//   Threads    The queue's owner.
//   Errors     Of a command: nothing was committed, unless MPSGraph has committed a part on its own; then the
//              rest is committed as well, and the flight ends with the failure. record() may throw
//              std::bad_alloc; drop() does not.
//   Owed       What a submission without command buffer waits for, the next one that has one waits for, too:
//              it touches what that one would have, and knows of that one alone.
#pragma once

#import <Metal/Metal.h>
#import <MetalPerformanceShadersGraph/MetalPerformanceShadersGraph.h>

#include "device/command_list.h"
#include "drivers/metal/flight.h"
#include "drivers/metal/open_device.h"

namespace heddle::metal {

// Blocks until what the list waits for is over, but for a queue's own points: for a submission that is
// refused, where the host has no memory to have it waited for.
void await_on_host(const device::CommandList& list, const device::Timeline* own);

class Recorder {
 public:
  Recorder(const OpenDevice& open, const Ref<MetalTimeline>& timeline, uint64_t value, Ref<Flight> flight,
           std::vector<device::Point>& owed);
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  Status begin(id<MTLCommandQueue> queue);
  Status record(const device::Wait& wait);
  Status record(const device::Run& run);
  Status record(const device::Copy& copy);
  Status record(const device::Fill& fill);
  Status record(const device::Signal& signal);
  Status commit();
  // `why`, unless a part was committed: then ok, and the timeline tells. What the list waits for is waited
  // for: its buffers are marked with this value alone. `queue` nil: it may have no more command buffers.
  Status drop(Status why, id<MTLCommandQueue> queue, const device::CommandList& list);

 private:
  // Where a view's elements are for the GPU.
  struct Window {
    id<MTLBuffer> buffer = nil;
    int64_t start = 0;  // of the first element, in elements
    ir::Extents strides;
  };
  Result<Window> window(const device::View& view);
  Result<id<MTLBuffer>> map(const device::View& view);  // memory of the caller
  Result<id<MTLBuffer>> whole_buffer(const device::View& operand);
  Status copy_elements(const Window& from, const Window& to, ir::DType dtype, const ir::Extents& extents);
  Status walk(id<MTLComputePipelineState> kernel, id<MTLBuffer> from, uint64_t bits, const Window* source,
              const Window& to, const ir::Extents& extents);
  id<MTLCommandBuffer> current() const {
    return open_.options.defences.watches_root ? [commands_ rootCommandBuffer] : [commands_ commandBuffer];
  }
  void owe(const device::Point& point);
  void send();

  const OpenDevice& open_;
  const Ref<MetalTimeline> timeline_;
  const uint64_t value_;
  const Ref<Flight> flight_;
  std::vector<device::Point>& owed_;
  MPSCommandBuffer* commands_ = nil;  // of the pool of the function that submits
};

}  // namespace heddle::metal
