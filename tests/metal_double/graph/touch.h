// touch.h: finds two threads inside one object that Apple says is not safe for that.
//
//   Threads    Any; an overlap aborts, whether or not it would have done harm this time. One thread may be
//              inside several times: blocks of a graph call its methods.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/atomic.h"

namespace heddle::metal_double {

class Touch {
 public:
  void enter(const char* object, const std::string& method) {
    const void* const me = &mark();
    const void* expected = nullptr;
    // acq_rel: what one thread did inside is seen by the next; a real user has to see to that as well, so
    // this hides no race but those it aborts on.
    if (!inside_.cas_strong_acq_rel(expected, me) && expected != me) {
      std::fprintf(stderr, "-[%s %s]: two threads use one %s at once, which it is not safe for\n", object,
                   method.c_str(), object);
      std::abort();
    }
    ++depth_;
  }
  void leave() {
    if (--depth_ == 0) inside_.store_release(nullptr);
  }

 private:
  static char& mark() {
    static thread_local char here = 0;
    return here;
  }
  Atomic<const void*> inside_{nullptr};  // whose; taken and given back by one thread
  int depth_ = 0;                        // of that thread
};

}  // namespace heddle::metal_double
