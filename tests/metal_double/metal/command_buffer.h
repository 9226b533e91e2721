// command_buffer.h: how other parts of the double put work into a command buffer.
//
//   What       A Pass is work for the GPU with the buffers it reads and writes. Encoders make one each;
//              MPSGraph makes them through append().
//   Ordering   Passes of a queue run one after another in the order of commits. Whether they had to is
//              checked by what they read and write (drivers/sim/hazards.h), so a Pass must name every range
//              it touches.
//   Lifetime   The pass retains its buffers until its command buffer has completed, unless the command
//              buffer has unretained references or Fault::kStridedCopyDropsSource hits it. The work must
//              reach memory through its PassBytes only: they may be other bytes than the buffer's when a
//              fault is on.
#pragma once

#import <Metal/Metal.h>

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace heddle::metal_double {

enum class PassKind : uint8_t {
  kCompute,
  kBlit,
  kGraph,
  kStridedCopy,  // reads a source through strides: the kind that Fault::kStridedCopy... is about
};

struct Access {
  id<MTLBuffer> buffer;                // one of the double's
  bool writes = false;                 // false: only reads
  NSRange range = {0, NSUIntegerMax};  // NSUIntegerMax: to the end
};

// How a pass ended. No code: well.
struct PassResult {
  MTLCommandBufferError code = MTLCommandBufferErrorNone;
  NSString* text = nil;  // the error's localizedDescription
};

// The bytes of each access, in the order of Pass::accesses, ranges applied.
using PassBytes = std::vector<std::span<std::byte>>;

struct Pass {
  PassKind kind = PassKind::kGraph;
  std::vector<Access> accesses;
  std::function<PassResult(const PassBytes&)> work;  // runs on the queue's thread
};

// The buffer's memory at encoding, private ones included (-contents answers NULL for those).
void* bytes(id<MTLBuffer> buffer);

// Appends the pass at this place of the buffer. Aborts as an encoder's factory would: buffer committed, an
// encoder open, two threads at once.
void append(id<MTLCommandBuffer> command_buffer, Pass pass);

}  // namespace heddle::metal_double
