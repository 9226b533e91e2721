#import "objects.h"

#include <objc/runtime.h>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#import "tests/metal_double/foundation/object.h"

@implementation DoubleObject
@synthesize label = _label;
- (void)dealloc {
  [_label release];
  heddle::foundation::bury(self);
  if (false) [super dealloc];  // the memory stays, as a zombie
}
@end

namespace heddle::metal_double {

void fail(id object, SEL selector, const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fprintf(stderr, "-[%s %s]: failed assertion `%s'\n", object_getClassName(object), sel_getName(selector),
          text);
  abort();
}

namespace {
const void* this_thread() {
  static thread_local char place;
  return &place;
}
}  // namespace

OneThread::Visit::Visit(OneThread& place, id object, SEL selector) : place_(place) {
  const void* expected = nullptr;
  outermost_ = place_.visitor_.compare_exchange_strong(expected, this_thread(), std::memory_order_relaxed);
  if (!outermost_ && expected != this_thread()) {
    fail(object, selector, "two threads use %s %p at once: it is not thread-safe",
         object_getClassName(object), static_cast<void*>(object));
  }
}

OneThread::Visit::~Visit() {
  if (outermost_) place_.visitor_.store(nullptr, std::memory_order_relaxed);
}

}  // namespace heddle::metal_double
