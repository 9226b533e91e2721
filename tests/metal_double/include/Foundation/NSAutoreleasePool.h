// NSAutoreleasePool.h: what @autoreleasepool compiles to.
//
//   Threads    Each thread has its own stack of pools. An object autoreleased with no pool in place leaks,
//              with a line on stderr, as on macOS.
//   Invariant  Draining a pool drains those above it first: an exception may have jumped over them.
#pragma once

#import <Foundation/NSObject.h>

NS_ASSUME_NONNULL_BEGIN

@interface NSAutoreleasePool : NSObject {
  NSAutoreleasePool* _below;
  void* _objects;
}
- (void)addObject:(id)object;
- (void)drain;
@end

NS_ASSUME_NONNULL_END
