// objects.h: what all classes of the double share, and how they abort.
//
//   What       DoubleObject: a label, a count in live_objects(), and a zombie at its end: a message to it
//              after its last release aborts. OneThread: the check behind classes that Metal does not make
//              thread-safe.
//   Errors     METAL_ASSERT aborts as Metal's validation does: "-[Class method]: failed assertion `text'" on
//              stderr.
#pragma once

#import <Metal/Metal.h>

#include <atomic>

#include "state.h"

@interface DoubleObject : NSObject {
  NSString* _label;
  heddle::metal_double::Alive _alive;
}
@property(nullable, copy, atomic) NSString* label;
@end

namespace heddle::metal_double {

[[noreturn]] void fail(id object, SEL selector, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

#define METAL_ASSERT(condition, ...)                                         \
  do {                                                                       \
    if (!(condition)) ::heddle::metal_double::fail(self, _cmd, __VA_ARGS__); \
  } while (false)

// Begins a method of a class that is not thread-safe: aborts if another thread is inside one on the same
// object.
#define METAL_ONE_THREAD(place) const ::heddle::metal_double::OneThread::Visit visit(place, self, _cmd)

class OneThread {
 public:
  class Visit {
   public:
    Visit(OneThread& place, id object, SEL selector);
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    ~Visit();

   private:
    OneThread& place_;
    bool outermost_;
  };

 private:
  std::atomic<const void*> visitor_{nullptr};
};

}  // namespace heddle::metal_double
