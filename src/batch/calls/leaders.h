// leaders.h: threads that act for calls without a thread of their own: they lead, keep the time and answer.
//
//   What       post() runs a task on one of them, at() does so when its time has come. A thread starts when
//              none is idle for a task, or to keep the time, up to `most`; the first with the first promise.
//   Looking    With processors to look on, one that is idle looks for a task before it sleeps (looking.h).
//              Nobody is woken for as many tasks as look: each looks under the lock before it sleeps. One of
//              them takes a task, and the others do not come to the lock for it.
//   Promises   Each owe() is settled once, later. The threads stay until nothing is owed, so a task that
//              settles a promise may be posted after stop().
//   States     open -> stopped (nothing more may be owed) -> over (nothing is owed, the threads have ended).
//   Threads    Any. Tasks and timers may call everything here, and destroy the Leaders.
//   Blocks     stop() and the destructor, until nothing is owed and all threads have ended but the one that
//              asks. await_settled(), until its deadline. Nothing else.
//   Lifetime   A thread that destroys the Leaders from inside a task cannot join itself: it is passed to
//              `outlives`, whose owner joins it once `ended` is set.
//   Fork       In a child process there are no such threads: owe() refuses, nothing here is touched.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <tuple>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/thread.h"

namespace heddle::batch {

struct Leader {
  Thread thread;
  decltype(std::this_thread::get_id()) id;  // under the lock of the Leaders
  // Set by the thread when it has nothing left to do, read by the owner that then joins it; relaxed: the join
  // orders them.
  Atomic<bool> ended{false};
};
using Outlives = std::function<void(Ref<Leader>)>;

class Leaders {
 public:
  using Task = std::function<void()>;                       // throws nothing
  using Timer = std::tuple<TimePoint, uint64_t, uint64_t>;  // when, and two numbers that tell it from others

  Leaders(int most, Outlives outlives, int look_on = 0);
  ~Leaders();
  Leaders(const Leaders&) = delete;
  Leaders& operator=(const Leaders&) = delete;

  Status owe();  // unavailable once stopped; exhausted when not even one thread can be started
  void settle(uint64_t promises = 1);  // several at once write the word that all threads share once
  void post(Task task);
  void at(const Timer& timer, Task task);  // a timer of this name that is set already stays
  void forget(const Timer& timer);         // nothing when it has rung
  void stop();
  // False: something is still owed, or this is one of the threads.
  bool await_settled(Deadline deadline) const;
  int threads() const;

 private:
  struct Shared;  // what the threads use: it outlives this object
  static bool start(const Ref<Shared>& shared, const Ref<Leader>& leader);
  static void start_if(const Ref<Shared>& shared, const Ref<Leader>& more);
  static void work(const Ref<Shared>& ref, Leader& self);
  bool is_own_thread() const;

  const uint32_t born_;
  const Outlives outlives_;
  const Ref<Shared> shared_;
};

}  // namespace heddle::batch
