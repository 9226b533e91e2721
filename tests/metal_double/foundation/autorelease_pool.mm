// autorelease_pool.mm: each thread's stack of pools.
#import <Foundation/NSAutoreleasePool.h>

#include <objc/runtime.h>
#include <cstdio>
#include <vector>

#import "object.h"
#import "system_memory.h"

namespace {
thread_local NSAutoreleasePool* newest_pool;
}

@implementation NSAutoreleasePool

- (instancetype)init {
  const heddle::foundation::SystemMemory memory;
  _below = newest_pool;
  newest_pool = self;
  _objects = new std::vector<id>;
  return self;
}
- (void)addObject:(id)object {
  const heddle::foundation::SystemMemory memory;
  static_cast<std::vector<id>*>(_objects)->push_back(object);
}
- (void)drain {
  [self release];
}
- (void)dealloc {
  while (newest_pool != self) [newest_pool release];
  auto* objects = static_cast<std::vector<id>*>(_objects);
  // Objects released here may autorelease further ones into this same pool.
  for (size_t i = 0; i < objects->size(); ++i) [(*objects)[i] release];
  delete objects;
  newest_pool = _below;
  [super dealloc];
}

@end

namespace heddle::foundation {

void give_to_pool(id object) {
  if (newest_pool) {
    [newest_pool addObject:object];
  } else {
    fprintf(stderr, "%s %p autoreleased with no pool in place - just leaking\n", object_getClassName(object),
            static_cast<void*>(object));
  }
}

}  // namespace heddle::foundation
