// properties.mm: what @synthesize compiles to. libobjc has these, too, but uninstrumented: a race through a
// synthesized property would go unseen. Ours are found first.
#import <Foundation/NSObject.h>

#include <objc/runtime.h>
#include <cstdint>
#include <mutex>

namespace {

std::mutex& lock_of(const void* place) {
  static std::mutex locks[16];
  return locks[(reinterpret_cast<uintptr_t>(place) >> 4) & 15];
}

id* place(id self, ptrdiff_t offset) { return reinterpret_cast<id*>(reinterpret_cast<char*>(self) + offset); }

}  // namespace

extern "C" void objc_setProperty(id self, SEL, ptrdiff_t offset, id value, BOOL atomic, signed char copy) {
  if (!self) return;
  id* const slot = place(self, offset);
  const id kept = copy ? [value copy] : [value retain];
  id before = nil;
  if (atomic) {
    const std::lock_guard lock(lock_of(slot));
    before = *slot;
    *slot = kept;
  } else {
    before = *slot;
    *slot = kept;
  }
  [before release];
}

extern "C" id objc_getProperty(id self, SEL, ptrdiff_t offset, BOOL atomic) {
  if (!self) return nil;
  id* const slot = place(self, offset);
  if (!atomic) return *slot;
  id value = nil;
  {
    const std::lock_guard lock(lock_of(slot));
    value = [*slot retain];
  }
  return [value autorelease];
}
