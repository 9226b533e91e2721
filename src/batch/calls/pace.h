// pace.h: members of batches that need one thing in turn when they have their results, such as Python's lock,
// are woken a few at a time.
//
//   What       A thread inside a Scope is paced: where it sits in a batch, it is told the result only while
//              few others are on their way (told, and not yet through). Batches whose members wait to be
//              told stand in line. A thread that enters a Scope passes on what is due: it holds nobody up
//              there. A thread that gets through passes on what is due only if nobody else is on the way.
//   Turn       Those on their way spin for a moment until the one before has let the thing go, which it most
//              likely does for its next call: a sleeper would be awake later. It is a hint: who has spun in
//              vain asks for the thing as ever, and is the one that the next waits for.
//   Why        A woken thread that finds the lock taken sleeps again, and is woken again: two hand-overs
//              where one is enough, and each costs more than the lock is held for.
//   Invariant  While members wait to be told, somebody is on the way. Each that is told is counted until it
//              calls passed(), makes its next call, or its Scope ends: nobody waits in a seat who is counted.
//   Threads    Any. A Scope is its thread's.
//   Blocks     await_turn(), for `spin` at most. Nothing else.
//   Lifetime   Outlives its Scopes and the batches of their members. In a forked child it paces nobody: those
//              who were on the way are not there.
#pragma once

#include <deque>

#include "base/fork.h"
#include "base/status.h"
#include "base/sync.h"

namespace heddle::batch {

struct FormingBatch;

class Pace {
 public:
  // So many at once are on the way, and spin so long: 0, where their cores have better to do.
  Pace(int on_the_way, Duration spin) : most_(on_the_way), spin_(spin), born_(fork_generation()) {}
  Pace(const Pace&) = delete;
  Pace& operator=(const Pace&) = delete;

  class Scope {
   public:
    explicit Scope(Pace& pace);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    void await_turn();  // before this thread asks for what they need
    void passed();      // it is through

   private:
    friend Pace;
    Pace* const pace_;  // null: in a forked child
    Scope* const outer_;
    bool told_ = false;
  };

  // Of the calling thread; null: it is not paced.
  static Pace* of_this_thread();
  // The calling thread is about to take a seat: if it was told before, it is through.
  static void begin_call();
  // The calling thread was told by add() or by one who passed it on.
  static void count_as_told();

  // Its members have a result.
  void add(Ref<FormingBatch> batch);
  int waiting() const { return static_cast<int>(state_.lock()->line.size()); }  // batches, for tests
  int on_the_way() const { return state_.lock()->on_the_way; }                  // likewise

 private:
  struct State {
    std::deque<Ref<FormingBatch>> line;
    int on_the_way = 0;
  };
  void tell_while(int fewer_than);

  const int most_;
  const Duration spin_;
  const uint32_t born_;
  mutable Guarded<State, Rank::kBatch> state_;
  // A hint: a thread takes the turn by setting it, and clears it in its next Scope. It publishes nothing.
  Atomic<bool> turn_{false};
};

}  // namespace heddle::batch
