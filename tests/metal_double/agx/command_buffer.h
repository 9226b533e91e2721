// command_buffer.h: command buffers and queues of the AGX double: in order, one thread a queue.
#pragma once

#import <Metal/Metal.h>

#include "context.h"

#include <condition_variable>
#include <mutex>

@class AGXG16XFamilyCommandQueue;

// Of events: what a command buffer's wait does, for a minute at most.
@protocol AGXWaits
- (void)waitOnGpuForValue:(uint64_t)value;
@end

@interface AGXG16XFamilyCommandBuffer : NSObject <MTLCommandBuffer> {
 @public
  AGXG16XFamilyCommandQueue* _queue;
  std::mutex _lock;
  std::condition_variable _changed;
  std::vector<agx_double::Work> _work;
  std::vector<MTLCommandBufferHandler> _handlers;
  MTLCommandBufferStatus _status;
  id _open;  // the encoder that has not ended, not owned
  NSString* _label;
  bool _counted;
}
- (instancetype)initWithQueue:(AGXG16XFamilyCommandQueue*)queue;
- (void)encoder:(id)encoder endedWith:(std::vector<agx_double::Work>&)work;
@end

@interface AGXG16XFamilyCommandQueue : NSObject <MTLCommandQueue> {
 @public
  id<MTLDevice> _device;
  dispatch_queue_t _gpu;
  NSString* _label;
  std::mutex _lock;
  std::condition_variable _freed;
  uint64_t _uncompleted;
}
- (void)oneFewer;
@end
