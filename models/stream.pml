// stream.pml: a stream's Turn, the right to submit to it.
//
//   Models     src/runtime/streams/stream.cpp: try_turn, turn, end_turn. src/base/sync.h: wait_until.
//   Safety     A Turn has one owner.
//   Liveness   Who waits for a Turn gets it (invalid end states). No execution is infinite (ends).
//   Fairness   None is needed.
//   Bound      THREADS that take the Turn twice each.
//   Left out   Deadlines: a waiter whose deadline passes leaves the word as awaited, which costs a wake-up.
//              The wait is Guarded's, whose steps are in timeline.pml.
//
//   Run turn: safety THREADS=3
//   Run turn_ends: ends THREADS=2
//   Replay turns: runtime_sim_test THREADS=3
//   Long turn_more: safety THREADS=4

#include "replay.inc"

#define FREE 0
#define TAKEN 1
#define AWAITED 2
byte word;      // turn_

bool lock;      // of turn_over_
bool asleep[THREADS];
byte owners;    // not in the code
byte over;

proctype Turner(byte me) {
  byte before, times;
  do
  :: times == 2 -> break
  :: times < 2 ->
     if
     :: STEP(turn_take, me, 0, atomic { word == FREE -> word = TAKEN })  // try_turn
     :: else ->
        atomic { !lock -> lock = true }
        do
        :: STEP(turn_ask, me, word, atomic { before = word; word = AWAITED });
           if
           :: before == FREE -> break
           :: else ->
              atomic { asleep[me] = true; lock = false }  // Guarded's wait
              atomic { !asleep[me] && !lock -> lock = true }
           fi
        od;
        lock = false
     fi;
     owners++;
     assert(owners == 1);
     owners--;
     STEP(turn_end, me, word, atomic { before = word; word = FREE });  // end_turn
     if
     :: before == AWAITED ->
        atomic { !lock -> lock = true }
        lock = false;
        STEP(turn_tell, me, 0, skip);
        if  // notify_one
        :: atomic { asleep[0] -> asleep[0] = false }
        :: atomic { asleep[1] -> asleep[1] = false }
        :: atomic { asleep[THREADS - 2] -> asleep[THREADS - 2] = false }
        :: atomic { asleep[THREADS - 1] -> asleep[THREADS - 1] = false }
        :: else
        fi
     :: else
     fi;
     times++
  od;
  over++
}

init {
  byte t;
  REPLAY_BEGIN;
  atomic {
    for (t : 0 .. THREADS - 1) { run Turner(t) }
  }
  over == THREADS;
  assert(word == FREE && !lock);
  REPLAY_END
}
