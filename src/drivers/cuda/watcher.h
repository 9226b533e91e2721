// watcher.h: the thread that looks at timelines for those who sleep.
//
//   What       A GPU tells no thread of its progress: somebody has to look. A few callers look for a while
//              before they sleep: they see the end 1.4 us after it, and 5.7 us and more when another thread
//              has to wake them (../shared probes, P1). For those that sleep this one looks. It sleeps itself
//              while nobody waits. Watched is a timeline of that kind.
//   Lookers    As many at once as are given: more than there is room for keep other callers from running.
//   Threads    watch(): any. run(): the thread's body.
//   Blocks     Never but for the lock.
//   Errors     watch() may find no memory. The thread needs none.
#pragma once

#include <list>
#include <memory>

#include "device/timeline.h"

namespace heddle::cuda {

class Watched;

class Watcher {
 public:
  static constexpr Duration kPatience = std::chrono::microseconds(200);  // of one who looks
  explicit Watcher(int lookers) : lookers_(lookers) {}
  Duration begin_looking();  // 0: enough look already
  void end_looking() { looking_.sub_relaxed(1); }
  void watch(Ref<Watched> timeline, uint64_t value);
  void run();
  void stop();

 private:
  struct Awaited {
    Ref<Watched> timeline;
    uint64_t value;
  };
  struct State {
    std::list<Awaited> arrived;
    bool stopped = false;
  };
  static void ask(Watched& timeline);
  bool take_arrivals(std::list<Awaited>& awaited, bool idle, Duration pause);

  const int lookers_;
  Atomic<int> looking_{0};  // a limit that orders nothing
  Guarded<State, Rank::kRegistry> state_;
};

class Watched : public device::Timeline, public std::enable_shared_from_this<Watched> {
 public:
  explicit Watched(Ref<Watcher> watcher) : watcher_(std::move(watcher)) {}
  void watch(uint64_t value) override {
    if (!done(value) && !failed()) watcher_->watch(shared_from_this(), value);
  }
  Duration begin_looking() override { return watcher_->begin_looking(); }
  void end_looking() override { watcher_->end_looking(); }
  // Nothing has changed for a while: is the device still there?
  virtual void ask() {}

 private:
  const Ref<Watcher> watcher_;
};

}  // namespace heddle::cuda
