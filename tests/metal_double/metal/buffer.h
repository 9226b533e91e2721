// buffer.h: DoubleBuffer and the memory behind it.
//
//   Lifetime  Storage outlives its buffer while a pass holds it, so that a pass whose source was dropped can
//             be given recycled bytes instead of freed ones. Ending a buffer that a command buffer without
//             retained references still needs aborts with Metal's message.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#import "objects.h"
#include "state.h"

namespace heddle::metal_double {

struct Storage {
  ~Storage();

  std::byte* data = nullptr;
  uint64_t size = 0;
  bool owned = true;    // false: the caller's memory, of newBufferWithBytesNoCopy
  bool charged = true;  // false: of a heap, which is charged as a whole
  MTLResourceOptions options = 0;
  std::atomic<bool> dropped{false};     // the buffer has had its last release
  std::atomic<int> unretained_uses{0};  // by command buffers with unretained references, not yet completed
  std::atomic<const void*> unretained_user{nullptr};

  std::mutex lock;  // of what follows
  AccessLog log;
  // Kept under Fault::kStridedCopyReadsUnfinished only: what the last writing pass found, and its position.
  std::vector<std::byte> before_last_write;
  Position last_write;

  bool tracked() const { return (options & MTLResourceHazardTrackingModeUntracked) == 0; }
  bool is_private() const { return (options & MTLResourceStorageModePrivate) != 0; }
};

// The device's books. charge() refuses beyond memory().limit.
bool charge(uint64_t size);
void refund(uint64_t size);
uint64_t charged();
uint64_t whole_pages(uint64_t size);

}  // namespace heddle::metal_double

@class DoubleHeap;

@interface DoubleBuffer : DoubleObject <MTLBuffer> {
 @public
  std::shared_ptr<heddle::metal_double::Storage> _storage;
  id<MTLDevice> _device;
  DoubleHeap* _heap;
  void (^_deallocator)(void* pointer, NSUInteger length);
}
@end

namespace heddle::metal_double {

// Owned by the caller; nil when memory is refused.
DoubleBuffer* new_buffer(id<MTLDevice> device, uint64_t size, MTLResourceOptions options) NS_RETURNS_RETAINED;
DoubleBuffer* new_heap_buffer(DoubleHeap* heap, uint64_t size,
                              MTLResourceOptions options) NS_RETURNS_RETAINED;
DoubleBuffer* new_borrowing_buffer(id<MTLDevice> device, void* memory, uint64_t size,
                                   MTLResourceOptions options) NS_RETURNS_RETAINED;
const std::shared_ptr<Storage>& storage(id<MTLBuffer> buffer);

}  // namespace heddle::metal_double
