#import "buffer.h"

#include <objc/runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <unistd.h>

#import "command_buffer.h"
#import "heap.h"

namespace heddle::metal_double {
namespace {

std::atomic<uint64_t> g_charged{0};

uint64_t page() { return static_cast<uint64_t>(getpagesize()); }

}  // namespace

uint64_t whole_pages(uint64_t size) { return (size + page() - 1) / page() * page(); }

bool charge(uint64_t size) {
  if (is_on(Fault::kOutOfMemory)) return false;
  if (g_charged.fetch_add(size) + size <= memory().limit) return true;
  g_charged -= size;
  return false;
}
void refund(uint64_t size) { g_charged -= size; }
uint64_t charged() { return g_charged; }

Storage::~Storage() {
  if (!owned) return;
  free(data);
  if (charged) refund(whole_pages(size));
}

namespace {

DoubleBuffer* new_zeroed(id<MTLDevice> device, uint64_t size, MTLResourceOptions options) {
  const uint64_t allocated = whole_pages(size);
  auto storage = std::make_shared<Storage>();
  storage->data = static_cast<std::byte*>(aligned_alloc(page(), allocated));
  if (!storage->data) abort();
  memset(storage->data, 0, allocated);
  storage->size = size;
  storage->options = options;
  DoubleBuffer* const made = [DoubleBuffer new];
  made->_storage = std::move(storage);
  made->_device = [device retain];
  return made;
}

}  // namespace

DoubleBuffer* new_buffer(id<MTLDevice> device, uint64_t size, MTLResourceOptions options) {
  return charge(whole_pages(size)) ? new_zeroed(device, size, options) : nil;
}

DoubleBuffer* new_heap_buffer(DoubleHeap* heap, uint64_t size, MTLResourceOptions options) {
  if (is_on(Fault::kOutOfMemory)) return nil;
  DoubleBuffer* const made = new_zeroed([heap device], size, options);
  made->_storage->charged = false;
  made->_heap = [heap retain];
  return made;
}

DoubleBuffer* new_borrowing_buffer(id<MTLDevice> device, void* memory, uint64_t size,
                                   MTLResourceOptions options) {
  auto storage = std::make_shared<Storage>();
  storage->data = static_cast<std::byte*>(memory);
  storage->size = size;
  storage->owned = false;
  storage->options = options;
  DoubleBuffer* const made = [DoubleBuffer new];
  made->_storage = std::move(storage);
  made->_device = [device retain];
  return made;
}

const std::shared_ptr<Storage>& storage(id<MTLBuffer> buffer) {
  return static_cast<DoubleBuffer*>(buffer)->_storage;
}

void* bytes(id<MTLBuffer> buffer) { return storage(buffer)->data; }

}  // namespace heddle::metal_double

@implementation DoubleBuffer

- (id<MTLDevice>)device {
  return _device;
}
- (void*)contents {
  return _storage->is_private() ? nullptr : _storage->data;
}
- (NSUInteger)length {
  return _storage->size;
}
- (uint64_t)gpuAddress {
  return reinterpret_cast<uint64_t>(_storage->data);
}
- (void)didModifyRange:(NSRange)range {
  METAL_ASSERT(NSMaxRange(range) <= _storage->size,
               "range.location + range.length(%lu) must be <= length(%lu)", NSMaxRange(range), [self length]);
}
- (MTLPurgeableState)setPurgeableState:(MTLPurgeableState)state {
  (void)state;
  return MTLPurgeableStateNonVolatile;
}
- (MTLCPUCacheMode)cpuCacheMode {
  return static_cast<MTLCPUCacheMode>(_storage->options & 0xf);
}
- (MTLStorageMode)storageMode {
  return static_cast<MTLStorageMode>(_storage->options >> 4 & 0xf);
}
- (MTLHazardTrackingMode)hazardTrackingMode {
  return _storage->tracked() ? MTLHazardTrackingModeTracked : MTLHazardTrackingModeUntracked;
}
- (MTLResourceOptions)resourceOptions {
  return _storage->options;
}
- (id<MTLHeap>)heap {
  return _heap;
}
- (NSUInteger)heapOffset {
  return 0;
}
- (NSUInteger)allocatedSize {
  return _storage->size;
}

- (void)dealloc {
  METAL_ASSERT(
      _storage->unretained_uses == 0,
      "The following Metal object is being destroyed while still required to be alive by the command "
      "buffer %p:\n<%s: %p>\n    label = %s\n    length = %lu",
      _storage->unretained_user.load(), object_getClassName(self), static_cast<void*>(self),
      self.label ? [self.label UTF8String] : "<none>", [self length]);
  _storage->dropped = true;
  if (_deallocator) {
    _deallocator(_storage->data, _storage->size);
    Block_release(_deallocator);
  }
  if (_heap) _heap->_used -= heddle::metal_double::whole_pages(_storage->size);
  [_heap release];
  [_device release];
  [super dealloc];
}

@end
