// watcher.h: the thread that looks at timelines for those who sleep.
//
//   What       A GPU tells no thread of its progress: somebody has to look. Callers look while they spin; for
//              those that sleep this one does. It sleeps itself while nobody waits. Watched is a timeline of
//              that kind.
//   Threads    watch(): any. run(): the thread's body.
//   Blocks     Never but for the lock.
#pragma once

#include <memory>
#include <vector>

#include "device/timeline.h"

namespace heddle::cuda {

class Watched;

class Watcher {
 public:
  void watch(Ref<Watched> timeline, uint64_t value);
  void run();
  void stop();

 private:
  struct Awaited {
    Ref<Watched> timeline;
    uint64_t value;
  };
  struct State {
    std::vector<Awaited> arrived;
    bool stopped = false;
  };
  bool take_arrivals(std::vector<Awaited>& awaited, bool idle, Duration pause);

  Guarded<State, Rank::kRegistry> state_;
};

class Watched : public device::Timeline, public std::enable_shared_from_this<Watched> {
 public:
  explicit Watched(Ref<Watcher> watcher) : watcher_(std::move(watcher)) {}
  void watch(uint64_t value) override {
    if (!done(value) && !failed()) watcher_->watch(shared_from_this(), value);
  }
  // Nothing has changed for a while: is the device still there?
  virtual void ask() {}

 private:
  const Ref<Watcher> watcher_;
};

}  // namespace heddle::cuda
