// blocks.mm: a Blocks runtime whose blocks are objects and retain what they capture. Debian's
// libBlocksRuntime does neither.
//
//   What      The functions that clang emits calls to, and the classes behind the isa symbols it refers to.
//             The layout is that of clang's Block ABI.
//   Lifetime  Captured objects are retained by the copy of a block and released with it; variables marked
//             __block are not (the rule without ARC). A __block variable lives until the stack frame and all
//             copies are gone.
#include <cstdlib>
#include <cstring>

#import <Foundation/NSObject.h>

namespace {

enum BlockFlags : int {
  kNeedsFree = 1 << 24,  // lies on the heap
  kHasCopyDispose = 1 << 25,
  kIsGlobal = 1 << 28,
};
enum FieldFlags : int {
  kFieldIsBlock = 7,
  kFieldIsByref = 8,
  kFieldKind = 15,
  kByrefCaller = 128,
};
constexpr int kByrefCount = 0xffff;  // the low bits of Byref::flags

struct Descriptor {
  unsigned long reserved;
  unsigned long size;
  void (*copy)(void* destination, const void* source);
  void (*dispose)(const void* block);
};

struct Block {
  void* isa;
  int flags;
  int owners;
  void (*invoke)(void*, ...);
  Descriptor* descriptor;
};

struct Byref {
  void* isa;
  Byref* forwarding;
  int flags;
  int size;
  void (*keep)(Byref* destination, Byref* source);
  void (*destroy)(Byref*);
};

bool is_byref(int field) { return (field & kFieldKind) == kFieldIsByref; }

void* heap_copy(const void* bytes, size_t size) {
  void* const copy = malloc(size);
  if (!copy) abort();
  return memcpy(copy, bytes, size);
}

Byref* keep(Byref* variable) {
  Byref* const now = variable->forwarding;
  if (now->flags & kNeedsFree) {
    __atomic_fetch_add(&now->flags, 1, __ATOMIC_RELAXED);
    return now;
  }
  auto* const copy = static_cast<Byref*>(heap_copy(now, static_cast<size_t>(now->size)));
  copy->flags = (now->flags & ~kByrefCount) | kNeedsFree | 2;  // one owner is the block, one the stack frame
  copy->forwarding = copy;
  now->forwarding = copy;
  if (copy->flags & kHasCopyDispose) copy->keep(copy, now);
  return copy;
}

void let_go(Byref* variable) {
  Byref* const now = variable->forwarding;
  if (!(now->flags & kNeedsFree)) return;
  if ((__atomic_fetch_sub(&now->flags, 1, __ATOMIC_ACQ_REL) & kByrefCount) != 1) return;
  if (now->flags & kHasCopyDispose) now->destroy(now);
  free(now);
}

}  // namespace

extern "C" {

extern void* _NSConcreteMallocBlock[];

void* _Block_copy(const void* given) {
  auto* const block = static_cast<Block*>(const_cast<void*>(given));
  if (!block || (block->flags & kIsGlobal)) return block;
  if (block->flags & kNeedsFree) {
    __atomic_fetch_add(&block->owners, 1, __ATOMIC_RELAXED);
    return block;
  }
  auto* const copy = static_cast<Block*>(heap_copy(block, block->descriptor->size));
  copy->flags |= kNeedsFree;
  copy->owners = 1;
  copy->isa = _NSConcreteMallocBlock;
  if (copy->flags & kHasCopyDispose) copy->descriptor->copy(copy, block);
  return copy;
}

void _Block_release(const void* given) {
  auto* const block = static_cast<Block*>(const_cast<void*>(given));
  if (!block || !(block->flags & kNeedsFree)) return;
  if (__atomic_fetch_sub(&block->owners, 1, __ATOMIC_ACQ_REL) != 1) return;
  if (block->flags & kHasCopyDispose) block->descriptor->dispose(block);
  free(block);
}

void _Block_object_assign(void* destination, const void* object, int field) {
  const void*& kept = *static_cast<const void**>(destination);
  if (is_byref(field)) {
    kept = keep(static_cast<Byref*>(const_cast<void*>(object)));
  } else if (field & kByrefCaller) {
    kept = object;
  } else if ((field & kFieldKind) == kFieldIsBlock) {
    kept = _Block_copy(object);
  } else {
    kept = [static_cast<id>(const_cast<void*>(object)) retain];
  }
}

void _Block_object_dispose(const void* object, int field) {
  if (is_byref(field)) {
    let_go(static_cast<Byref*>(const_cast<void*>(object)));
  } else if (field & kByrefCaller) {
    return;
  } else if ((field & kFieldKind) == kFieldIsBlock) {
    _Block_release(object);
  } else {
    [static_cast<id>(const_cast<void*>(object)) release];
  }
}

}  // extern "C"

@interface NSBlock : NSObject
@end
@implementation NSBlock
- (id)copy {
  return static_cast<id>(_Block_copy(self));
}
- (id)copyWithZone:(NSZone*)zone {
  (void)zone;
  return static_cast<id>(_Block_copy(self));
}
- (id)retain {
  return static_cast<id>(_Block_copy(self));
}
- (oneway void)release {
  _Block_release(self);
}
@end

@interface __NSStackBlock__ : NSBlock
@end
@implementation __NSStackBlock__
@end
@interface __NSGlobalBlock__ : NSBlock
@end
@implementation __NSGlobalBlock__
@end
@interface __NSMallocBlock__ : NSBlock
@end
@implementation __NSMallocBlock__
@end

// The isa symbols that clang writes into blocks become aliases of these classes.
asm(".globl _NSConcreteStackBlock\n"
    ".set _NSConcreteStackBlock, _OBJC_CLASS___NSStackBlock__\n"
    ".globl _NSConcreteGlobalBlock\n"
    ".set _NSConcreteGlobalBlock, _OBJC_CLASS___NSGlobalBlock__\n"
    ".globl _NSConcreteMallocBlock\n"
    ".set _NSConcreteMallocBlock, _OBJC_CLASS___NSMallocBlock__\n");
