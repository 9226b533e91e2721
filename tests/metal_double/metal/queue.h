// queue.h: DoubleCommandQueue: in which order command buffers run, and how many may exist.
//
//   Threads   One for the GPU's work and one for handlers, per queue; both are made by dispatch.
//   Blocks    open_slot(), while maxCommandBufferCount of the queue's buffers have not completed.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>

#import "objects.h"
#include "state.h"

@class DoubleCommandBuffer;

namespace heddle::metal_double {

inline constexpr NSUInteger kMaxCommandBuffers = 64;

struct Waiting {
  DoubleCommandBuffer* buffer;  // retained
  bool committed = false;
};

struct QueueState {
  explicit QueueState();

  const QueueNumber number;
  const uint64_t scheduled_as;
  Schedule schedule;          // of the GPU's thread
  Schedule handler_schedule;  // of the handlers' thread
  Knowledge known;            // of the GPU's thread
  uint64_t passes = 0;        // of the GPU's thread

  std::mutex lock;
  std::condition_variable slot_free, handlers_changed;
  std::deque<Waiting> order;  // enqueued or committed, not yet given to the GPU's thread
  uint64_t commits = 0;
  std::set<uint64_t> handled;  // the newest commits whose handlers have run
  NSUInteger open = 0;
  NSUInteger limit = kMaxCommandBuffers;
};

}  // namespace heddle::metal_double

@interface DoubleCommandQueue : DoubleObject <MTLCommandQueue> {
 @public
  heddle::metal_double::QueueState _state;
  id<MTLDevice> _device;
  dispatch_queue_t _gpu;
  dispatch_queue_t _handlers;
}
- (instancetype)initWithDevice:(id<MTLDevice>)device limit:(NSUInteger)limit;
@end

namespace heddle::metal_double {

void enqueue(DoubleCommandQueue* queue, DoubleCommandBuffer* buffer);
void commit(DoubleCommandQueue* queue, DoubleCommandBuffer* buffer);  // enqueues it if it is not
void close_slot(DoubleCommandQueue* queue);

}  // namespace heddle::metal_double
