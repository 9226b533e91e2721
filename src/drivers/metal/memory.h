// memory.h: device memory: one shared MTLBuffer, which host and GPU address alike.
//
//   Threads    Immutable; the bytes are ordered by timelines.
//   Lifetime   A command buffer retains what it names; the buffer lives until both let go.
#pragma once

#import <Metal/Metal.h>

#include <memory>

#include "device/buffer.h"
#include "drivers/metal/defences.h"
#include "drivers/metal/owned.h"

namespace heddle::metal {

class MetalMemory final : public device::Memory {
 public:
  MetalMemory(const void* maker, Owned<id<MTLBuffer>> buffer, uint64_t bytes)
      : Memory(
            {maker, device::MemoryKind::device, [buffer.get() contents], [buffer.get() gpuAddress], bytes}),
        buffer_(std::move(buffer)) {}
  id<MTLBuffer> buffer() const { return buffer_.get(); }

 private:
  Owned<id<MTLBuffer>> buffer_;
};

// A shared buffer of at least `bytes`. exhausted beyond `limit`, and when Metal has none.
Result<Owned<id<MTLBuffer>>> make_buffer(id<MTLDevice> device, uint64_t bytes, uint64_t limit,
                                         const Defences& defences = {});

}  // namespace heddle::metal
