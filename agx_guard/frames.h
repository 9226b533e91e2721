// frames.h: the guarded calls that a thread is in, innermost first.
//
// They tell a nested call on the same encoder (no lock: the outer call has it), [super f] from f (the
// original above), and calls that the guard makes itself (passed through).
#pragma once

#include "originals.h"

namespace agx_guard {

struct Record;
struct Frame;

struct Thread {
  Frame* top;
  bool inside;  // the guard's own calls
};
inline thread_local constinit Thread this_thread{nullptr, false};

struct Frame {
  Frame(Thread& thread, id self, const Original& original)
      : thread(thread), self(self), original(original), outer(thread.top) {
    thread.top = this;
  }
  ~Frame() { thread.top = outer; }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  bool is_nested() const {
    for (const Frame* frame = outer; frame; frame = frame->outer) {
      if (frame->self == self) return true;
    }
    return false;
  }

  Thread& thread;
  id const self;
  const Original& original;
  Frame* const outer;
};

// While it lives, what this thread calls is the guard's own doing.
class Inside {
 public:
  Inside() : before_(this_thread.inside) { this_thread.inside = true; }
  ~Inside() { this_thread.inside = before_; }

 private:
  bool before_;
};

// The implementation that this call on `self` means.
inline const Original& resolve(Thread& thread, id self, SEL selector) {
  const Original* original = find_original(object_getClass(self), selector);
  const Frame* top = thread.top;
  if (top && top->self == self && top->original.call == original->call) original = find_above(top->original);
  return *original;
}

}  // namespace agx_guard
