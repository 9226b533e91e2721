// object.mm: NSObject, its reference count, and what happens to unknown messages.
#import "object.h"

#include <objc/runtime.h>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>

#import <Foundation/NSString.h>

namespace {

// Lies before every object. Zero is one owner, so that calloc'ed memory starts right.
struct Header {
  long further_owners;
  Class was;  // of a zombie: the class it had
};
static_assert(sizeof(Header) == 16, "objects stay aligned to 16 bytes");

Header* header(id object) { return reinterpret_cast<Header*>(object) - 1; }

// clang turns ThreadSanitizer off inside -dealloc, +initialize and -.cxx_destruct. A use that is not ordered
// before the last release is seen all the same if the last release counts as a write of the whole object.
#if __has_feature(thread_sanitizer)
extern "C" void __tsan_write_range(void* begin, unsigned long size);
void last_release_writes(id object) {
  __tsan_write_range(reinterpret_cast<void*>(object), class_getInstanceSize(object_getClass(object)));
}
#else
void last_release_writes(id) {}
#endif

using Structor = void (*)(id, SEL);

// The class's own implementation, or null if it only inherits one.
Structor own(Class aClass, SEL selector) {
  if (!class_respondsToSelector(aClass, selector)) return nullptr;
  const IMP found = class_getMethodImplementation(aClass, selector);
  const Class above = class_getSuperclass(aClass);
  if (above && class_respondsToSelector(above, selector) &&
      class_getMethodImplementation(above, selector) == found) {
    return nullptr;
  }
  return reinterpret_cast<Structor>(found);
}

SEL construct_selector() {
  static const SEL selector = sel_registerName(".cxx_construct");
  return selector;
}
SEL destruct_selector() {
  static const SEL selector = sel_registerName(".cxx_destruct");
  return selector;
}

void construct_members(id object, Class aClass) {
  if (!aClass || !class_respondsToSelector(aClass, construct_selector())) return;
  construct_members(object, class_getSuperclass(aClass));
  if (const Structor construct = own(aClass, construct_selector())) construct(object, construct_selector());
}

struct Graves {
  Graves() {
    if (const char* const asked = getenv("HEDDLE_METAL_DOUBLE_ZOMBIES")) most = strtoul(asked, nullptr, 10);
  }
  std::mutex lock;
  std::deque<id> zombies;
  size_t most = heddle::foundation::kZombies;
};
// Never destroyed: objects may die after the process's statics.
Graves& graves() {
  static Graves* const made = new Graves;
  return *made;
}

}  // namespace

// No method at all, not even NSObject's: every message arrives at unanswered() below.
__attribute__((objc_root_class))
@interface HeddleZombie {
  Class isa;
}
@end
@implementation HeddleZombie
@end

namespace {

// Of IMP's own type, as UndefinedBehaviorSanitizer wants it.
id unanswered_message(id object, SEL selector, ...) {
  if (object_getClass(object) == objc_lookUpClass("HeddleZombie")) {
    fprintf(stderr, "*** -[%s %s]: message sent to deallocated instance %p\n",
            class_getName(header(object)->was), sel_getName(selector), static_cast<void*>(object));
    abort();
  }
  [object doesNotRecognizeSelector:selector];
  return nil;
}
IMP unanswered(id, SEL) { return unanswered_message; }

__attribute__((constructor(101))) void answer_for_the_runtime() { __objc_msg_forward2 = unanswered; }

}  // namespace

namespace heddle::foundation {

void destroy_members(id object) {
  for (Class c = object_getClass(object); c; c = class_getSuperclass(c)) {
    if (const Structor destroy = own(c, destruct_selector())) destroy(object, destruct_selector());
  }
}

void bury(id object) {
  destroy_members(object);
  header(object)->was = object_getClass(object);
  object_setClass(object, objc_lookUpClass("HeddleZombie"));
  id oldest = nil;
  {
    Graves& g = graves();
    const std::lock_guard lock(g.lock);
    g.zombies.push_back(object);
    if (g.zombies.size() > g.most) {
      oldest = g.zombies.front();
      g.zombies.pop_front();
    }
  }
  if (oldest) free(header(oldest));
}

}  // namespace heddle::foundation

@implementation NSObject

+ (instancetype)alloc {
  auto* memory = static_cast<Header*>(calloc(1, sizeof(Header) + class_getInstanceSize(self)));
  if (!memory) abort();
  const id object = reinterpret_cast<id>(memory + 1);
  object_setClass(object, self);
  construct_members(object, self);
  return object;
}
+ (instancetype)allocWithZone:(NSZone*)zone {
  (void)zone;
  return [self alloc];
}
+ (instancetype)new {
  return [[self alloc] init];
}
- (instancetype)init {
  return self;
}
- (void)dealloc {
  heddle::foundation::destroy_members(self);
  free(header(self));
}

- (instancetype)retain {
  __atomic_fetch_add(&header(self)->further_owners, 1, __ATOMIC_RELAXED);
  return self;
}
- (oneway void)release {
  const long further = __atomic_fetch_sub(&header(self)->further_owners, 1, __ATOMIC_ACQ_REL);
  if (further > 0) return;
  last_release_writes(self);
  [self dealloc];
}
- (instancetype)autorelease {
  heddle::foundation::give_to_pool(self);
  return self;
}
- (NSUInteger)retainCount {
  return static_cast<NSUInteger>(1 + __atomic_load_n(&header(self)->further_owners, __ATOMIC_RELAXED));
}

+ (Class)class {
  return self;
}
- (Class)class {
  return object_getClass(self);
}
+ (Class)superclass {
  return class_getSuperclass(self);
}
- (instancetype)self {
  return self;
}
- (BOOL)isEqual:(id)object {
  return self == object;
}
- (NSUInteger)hash {
  return reinterpret_cast<NSUInteger>(self) >> 4;
}
- (NSString*)description {
  return [NSString stringWithFormat:@"<%s: %p>", object_getClassName(self), static_cast<void*>(self)];
}
- (BOOL)isKindOfClass:(Class)aClass {
  for (Class c = object_getClass(self); c; c = class_getSuperclass(c)) {
    if (c == aClass) return YES;
  }
  return NO;
}
+ (BOOL)conformsToProtocol:(Protocol*)protocol {
  for (Class c = self; c; c = class_getSuperclass(c)) {
    if (class_conformsToProtocol(c, protocol)) return YES;
  }
  return NO;
}
- (BOOL)conformsToProtocol:(Protocol*)protocol {
  return [object_getClass(self) conformsToProtocol:protocol];
}
+ (BOOL)instancesRespondToSelector:(SEL)selector {
  return class_respondsToSelector(self, selector);
}
- (BOOL)respondsToSelector:(SEL)selector {
  return class_respondsToSelector(object_getClass(self), selector);
}
- (IMP)methodForSelector:(SEL)selector {
  return class_getMethodImplementation(object_getClass(self), selector);
}
- (id)performSelector:(SEL)selector {
  return objc_msg_lookup(self, selector)(self, selector);
}
- (id)copy {
  return [static_cast<id<NSCopying>>(self) copyWithZone:nullptr];
}
- (id)mutableCopy {
  return [static_cast<id<NSMutableCopying>>(self) mutableCopyWithZone:nullptr];
}
- (void)doesNotRecognizeSelector:(SEL)selector {
  fprintf(stderr, "-[%s %s]: unrecognized selector sent to instance %p\n", object_getClassName(self),
          sel_getName(selector), static_cast<void*>(self));
  abort();
}

@end
