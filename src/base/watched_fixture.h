// watched_fixture.h: a value that is no atomic, for simulations with weak orders.
//
//   What       Each access is told to the simulation's WeakMemory, which fails where nothing orders two of
//              them, one a write, or where the value is gone. In other simulations it is a plain value.
//              Without kEnds its end is not told: the count of a shared pointer, which orders that, is no
//              Atomic.
//   Threads    As a plain value: what is used at once has to be ordered.
#pragma once

#if defined(HEDDLE_SIM)

#include "base/simulation.h"

namespace heddle::test {

template <class T, bool kEnds = true>
class Watched {
 public:
  Watched(T value = {}) : value_(value) {  // NOLINT: implicit, as the value itself
    if (WeakMemory* const memory = watcher()) memory->watch(this);
  }
  Watched(const Watched& other) : Watched(other.get()) {}
  Watched& operator=(const Watched& other) {
    set(other.get());
    return *this;
  }
  ~Watched() {
    if constexpr (kEnds) {
      if (WeakMemory* const memory = watcher()) memory->end_watch(this);
    }
  }
  T get() const {
    if (WeakMemory* const memory = watcher()) memory->read(this);
    return value_;
  }
  void set(T value) {
    if (WeakMemory* const memory = watcher()) memory->write(this);
    value_ = value;
  }
  bool operator==(const Watched& other) const { return get() == other.get(); }

 private:
  static WeakMemory* watcher() {
    Simulation* const simulation = Simulation::current();
    return simulation == nullptr ? nullptr : simulation->weak_memory();
  }
  T value_;
};

}  // namespace heddle::test

#endif
