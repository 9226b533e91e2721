// team.h: one thread budget: callers first, helpers where cores are idle.
//
//   What       Parallel loops (shared_loop.h), one for each caller that has cores to share with. Caller and
//              helpers take its chunks, each at first those that belong to its core. Helpers are numbered:
//              with n callers inside, the n - 1 last ones rest. Neighbours help the same caller while it has
//              a loop, then others. When another caller enters, a helper too many leaves at its next chunk.
//   Others     Callers share the cores evenly. As many as were inside together count for another kQuiet after
//              the last of them left: the next caller is most likely on its way, a helper would hold the core
//              it needs, and a caller that waits for that helper's chunk would wait for a preempted thread.
//   Invariant  Callers inside plus helpers at work <= width, but for a moment in which a caller enters, and
//              but for callers alone, who may exceed it (the governor bounds them). Every chunk runs exactly
//              once; what chunks wrote is visible to the caller when for_each returns.
//   Blocks     for_each returns when all chunks are over; it spins a bounded time for a helper's last chunk,
//              then parks.
//   Nodes      A helper has an OnNode (nodes.h) for each loop that it joins: it reads its own node's copy of
//              a weight, which need not be its caller's.
//   Threads    Any number of callers. `body` must not throw and must not call for_each.
//   Lifetime   Owned by the device; the destructor joins the helpers.
#pragma once

#include <memory>
#include <type_traits>

#include "base/clock.h"
#include "drivers/host/machine/nodes.h"

namespace heddle::host {

class Team {
 public:
  static constexpr Duration kQuiet = std::chrono::microseconds(500);

  // `width`: threads in all, callers included; >= 1. The clock outlives the team.
  // `nodes`: of the machine's memory, outlive it; null: one.
  explicit Team(int width, const Clock& clock = Clock::real(), const Nodes* nodes = nullptr);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // Counts the calling thread as a caller while it lives: one per submission. A brief one is over before a
  // helper could leave: it is not counted, writes nothing that other callers read, and shares no loop.
  class Caller {
   public:
    explicit Caller(Team& team, bool brief = false);
    ~Caller();
    Caller(const Caller&) = delete;
    Caller& operator=(const Caller&) = delete;

    // Threads that would share a loop started now: the budget over the callers that are inside, or were a
    // moment ago. A hint for choosing how finely to split.
    int share() const;
    template <class Body>
    void for_each(int chunks, Body&& body) {
      using B = std::remove_reference_t<Body>;
      run(
          chunks, [](void* b, int chunk) { (*static_cast<B*>(b))(chunk); },
          const_cast<std::remove_const_t<B>*>(&body));
    }

   private:
    void run(int chunks, void (*body)(void*, int), void* context);
    Team& team_;
    const bool brief_;
  };

  int width() const { return width_; }
  const Nodes* nodes() const { return nodes_; }

 private:
  struct State;
  const int width_;
  const Clock* const clock_;
  const Nodes* const nodes_;
  std::unique_ptr<State> state_;
};

}  // namespace heddle::host
