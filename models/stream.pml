// stream.pml: a stream's Turn, the right to submit to it, and what is held back between Turns.
//
//   Models     src/runtime/streams/stream.cpp: try_turn, turn, end_turn. src/runtime/streams/held_back.cpp:
//              send, send_held. src/base/held_back.h. src/base/sync.h: wait_until.
//   Safety     A Turn has one owner.
//   Liveness   Who waits for a Turn gets it, and what somebody has asked for is sent (invalid end states). No
//              execution is infinite (ends).
//   Fairness   None is needed.
//   Bound      THREADS that take the Turn twice each. With HOLDS one of them holds something back, once, and
//              ASKERS need it.
//   Left out   Deadlines: a waiter whose deadline passes leaves the word as awaited, which costs a wake-up.
//              The wait is Guarded's, whose steps are in timeline.pml. It ends for no reason with SPURIOUS.
//              The reaper asks as others do.
//
//   Run turn: safety THREADS=3
//   Run turn_again: safety THREADS=3 SPURIOUS=1
//   Run turn_ends: ends THREADS=2
//   Run held: safety THREADS=2 HOLDS=1 ASKERS=1
//   Run held_ends: ends THREADS=2 HOLDS=1 ASKERS=1
//   Replay turns: runtime_sim_test THREADS=3 SPURIOUS=1
//   Replay held: runtime_sim_test THREADS=2 HOLDS=1 ASKERS=1 SPURIOUS=1
//   Long turn_more: safety THREADS=4

#include "replay.inc"

#ifndef HOLDS
#define HOLDS 0
#endif
#ifndef ASKERS
#define ASKERS 0
#endif
#ifndef SPURIOUS
#define SPURIOUS 0
#endif
#define FREE 0
#define TAKEN 1
#define AWAITED 2
byte word;      // turn_
byte asked;     // asked_
bool held;      // HeldBack::value_, and for the owner of the Turn held_

bool lock;      // of turn_over_
bool asleep[THREADS];
byte owners;    // not in the code, as are these
byte holds;
byte turners;
byte over;

inline release() {  // end_turn, up to what is held back
  owners--;
  STEP(turn_end, me, word, atomic { before = word; word = FREE });
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
  fi
}

inline send_held() {
  STEP(stream_forget_asked, me, 0, asked = 0);
  STEP(held_back_hold, me, 0, held = false)
}

inline send() {
  STEP(stream_ask, me, 0, asked = 1);
  if
  :: STEP(turn_take, me, 0, atomic { word == FREE -> word = TAKEN }) ->
     owners++;
     assert(owners == 1);
     if
     :: held -> send_held()
     :: else
     fi;
     release()
  :: else
  fi
}

proctype Turner(byte me) {
  byte before, times;
  bool looks;
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
              if
              :: !asleep[me]
              :: atomic { SPURIOUS && asleep[me] -> asleep[me] = false }
              fi;
              atomic { !lock -> lock = true }
           fi
        od;
        lock = false
     fi;
     owners++;
     assert(owners == 1);
     if
     :: HOLDS && !held && holds == 0 -> holds++; STEP(held_back_hold, me, 1, held = true)
     :: HOLDS && held -> send_held()
     :: true
     fi;
     looks = held;
     release();
     if
     :: looks ->
        STEP(stream_look_asked, me, asked, atomic { before = asked; asked = 0 });
        if
        :: before != 0 -> send()
        :: else
        fi
     :: else
     fi;
     times++
  od;
  turners++;
  over++
}

proctype Asker(byte me) {
  byte before;
  if
  :: held ->  // HeldBack::want
     send();
     !held  // what it waits for is on its way
  :: turners == THREADS
  fi;
  over++
}

init {
  byte t;
  REPLAY_BEGIN;
  atomic {
    for (t : 0 .. THREADS + ASKERS - 1) {
      if
      :: t < THREADS -> run Turner(t)
      :: else -> run Asker(t)
      fi
    }
  }
  over == THREADS + ASKERS;
  assert(word == FREE && !lock);
  REPLAY_END
}
