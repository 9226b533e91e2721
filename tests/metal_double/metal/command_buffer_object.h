// command_buffer_object.h: DoubleCommandBuffer: encoded by one thread, run by its queue's.
//
//   States    not enqueued -> enqueued -> committed -> scheduled -> completed or error -> handlers over.
//             status tells all but the last; waitUntilCompleted waits for the last, or for the last but one
//             under Fault::kHandlerAfterWait.
//   Threads   Encoding: one thread at a time (checked). status, error, the waits: any.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <variant>
#include <vector>

#include "buffer.h"
#import "command_buffer.h"
#include "event.h"
#include "queue.h"

@class DoubleEncoder;

namespace heddle::metal_double {

struct HeldAccess {
  std::shared_ptr<Storage> storage;
  id<MTLBuffer> retained = nil;  // nil: the command buffer does not retain
  bool writes = false;
  Bytes bytes;
};
struct FenceUse {
  DoubleFence* fence = nil;  // retained
  bool update = false;
};
struct EncodedPass {
  PassKind kind;
  std::vector<HeldAccess> accesses;
  std::vector<FenceUse> fences;
  std::function<PassResult(const PassBytes&)> work;
};
struct EventUse {
  DoubleEvent* event = nil;  // retained
  uint64_t value = 0;
  bool signal = false;
};
using Operation = std::variant<EncodedPass, EventUse>;

struct CommandBufferState {
  OneThread one_thread;
  DoubleEncoder* open_encoder = nil;  // not retained
  std::vector<Operation> operations;
  bool retains = true;
  bool holds_slot = true;
  Knowledge host_at_commit;
  uint64_t turn = 0;  // among its queue's commits, from 1

  std::mutex lock;
  std::condition_variable changed;
  MTLCommandBufferStatus status = MTLCommandBufferStatusNotEnqueued;
  bool handlers_over = false;
  bool waiter_returned = false;
  NSError* error = nil;
  CFTimeInterval kernel_start = 0, kernel_end = 0, gpu_start = 0, gpu_end = 0;
  std::vector<MTLCommandBufferHandler> scheduled_handlers;
  std::vector<MTLCommandBufferHandler> completed_handlers;
};

}  // namespace heddle::metal_double

@interface DoubleCommandBuffer : DoubleObject <MTLCommandBuffer> {
 @public
  heddle::metal_double::CommandBufferState _state;
  DoubleCommandQueue* _queue;
  MTLCommandBufferErrorOption _errorOptions;
}
- (void)requireOpenFor:(SEL)method;  // aborts when nothing can be encoded now
@end

namespace heddle::metal_double {

void append_encoded(DoubleCommandBuffer* buffer, Pass pass, std::vector<FenceUse> fences);
void encoder_ended(DoubleCommandBuffer* buffer, DoubleEncoder* encoder);
void drop_operations(DoubleCommandBuffer* buffer);  // lets go of all that they hold
void run(DoubleCommandBuffer* buffer);              // on the queue's GPU thread

}  // namespace heddle::metal_double
