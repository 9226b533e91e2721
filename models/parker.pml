// parker.pml: one thread that sleeps until it is told something, with a word and the kernel's comparison.
//
//   Models     src/base/parker.cpp: tell, wait, sleep; src/base/parker.h: take. src/base/futex.cpp: the
//              kernel compares the word before the thread sleeps. src/batch/calls/forming_batch.h:
//              Member::tell, with src/batch/calls/seats.cpp: leave_empty, for a seat in which no thread
//              waits.
//   Safety     wait() returns bits that were told and not yet taken, or its deadline has passed. What is
//              told to a seat is acted upon once: by the thread in the seat, by the one that leaves it
//              empty, or by the one that tells. The owner alone sets and clears kAsleep.
//   Liveness   An owner that was told does not sleep (invalid end states); no execution is infinite (ends).
//   Fairness   None is needed.
//   Bound      TELLERS threads, each with a bit of its own. The deadline passes (LATE) once at most, and the
//              kernel wakes for no reason SPURIOUS times at most.
//   Left out   Waits in slices for interrupts: each is a wait with a deadline. The parker without a futex.
//
//   Run sleep: safety TELLERS=3 SPURIOUS=1
//   Run late: safety TELLERS=2 LATE=1 SPURIOUS=1
//   Run late_ends: ends TELLERS=2 LATE=1 SPURIOUS=1
//   Run seat: safety TELLERS=2 EMPTY=1
//   Replay sleep: base_sim_test TELLERS=3 LATE=1 SPURIOUS=9
//   Replay seat: batch_sim_test TELLERS=3 EMPTY=1
//   Long sleep_more: safety TELLERS=4 LATE=1 SPURIOUS=1
//   Long seat_more: safety TELLERS=4 EMPTY=1

#include "replay.inc"

#ifndef LATE
#define LATE 0
#endif
#ifndef SPURIOUS
#define SPURIOUS 0
#endif
#ifndef EMPTY
#define EMPTY 0
#endif
#define ASLEEP 128
#define BIT(teller) (2 << (teller))
#define ALL_BITS (BIT(TELLERS) - 2)

byte word;       // word_: bits told and not taken, and ASLEEP
bool in_kernel;  // the owner sleeps in the kernel
byte told_so_far, taken_so_far;  // not in the code
bool is_absent;  // Member::is_absent
byte acted[TELLERS];
byte over;

inline tell(bits) {
  STEP(parker_tell, me, (word & ASLEEP) != 0, atomic {
    before = word;
    word = word | bits;
    told_so_far = told_so_far | bits
  });
  if
  :: before & ASLEEP -> in_kernel = false  // futex::wake
  :: else
  fi
}

// Parker::take: true if the bit was there.
inline take(bits) {
  STEP(parker_take, me, word & (bits), atomic { got = word & (bits); word = word & ~(bits) })
}

proctype Teller(byte me) {
  byte before, got;
  tell(BIT(me));
  if
  :: EMPTY ->  // Member::tell
     if
     :: STEP(seat_look_whether_empty, me, 1, is_absent) ->
        take(BIT(me));
        if
        :: got -> acted[me]++
        :: else
        fi
     :: STEP(seat_look_whether_empty, me, 0, !is_absent)  // the thread in the seat acts
     fi
  :: else
  fi;
  over++
}

// Parker::sleep. What was told stays in the word.
inline sleep() {
  do
  :: STEP(parker_fall_asleep, me, 0, atomic { word == 0 -> word = ASLEEP })  // cas_strong_acq_rel
     goto_kernel()
  :: STEP(parker_fall_asleep, me, word & ~ASLEEP, atomic { (word & ~ASLEEP) != 0 -> skip })
     break
  :: STEP(parker_fall_asleep, me, 0, atomic { word == ASLEEP -> skip })  // woken for no reason
     goto_kernel()
  od;
  STEP(parker_wake, me, word & ~ASLEEP, atomic {
    found = word & ~ASLEEP;
    word = word & ~ASLEEP
  })
}

inline goto_kernel() {
  if
  :: late -> break
  :: LATE && !late -> late = true; break
  :: !late
  fi;
  if
  :: atomic { word == ASLEEP -> in_kernel = true }
     if
     :: !in_kernel
     :: atomic { LATE && in_kernel -> in_kernel = false; late = true }
     :: atomic { woken < SPURIOUS && in_kernel -> in_kernel = false; woken++ }
     fi
  :: word != ASLEEP
  fi
}

proctype Owner() {
  byte me = TELLERS;
  byte found, got, woken;
  bool late;
  do
  :: taken_so_far == ALL_BITS -> break
  :: taken_so_far != ALL_BITS ->
     sleep();
     assert((word & ASLEEP) == 0 && !in_kernel);
     assert(found != 0 || late);
     assert((found & ~told_so_far) == 0 && (found & taken_so_far) == 0);
     late = false;
     take(found);
     assert(got == found);
     taken_so_far = taken_so_far | found;
     if
     :: LATE && found == 0 -> break
     :: else
     fi
  od;
  over++
}

// Coalescer::leave_empty: the seat is told nothing that is lost.
proctype Leaver() {
  byte me = TELLERS;
  byte got, note;
  STEP(seat_leave_empty, me, 0, is_absent = true);
  do
  :: note == TELLERS -> break
  :: note < TELLERS ->
     take(BIT(note));
     if
     :: got -> acted[note]++
     :: else
     fi;
     note++
  od;
  over++
}

init {
  byte t;
  REPLAY_BEGIN;
  atomic {
    for (t : 0 .. TELLERS - 1) { run Teller(t) }
    if
    :: EMPTY -> run Leaver()
    :: else -> run Owner()
    fi
  }
  over == TELLERS + 1;
  if
  :: EMPTY -> for (t : 0 .. TELLERS - 1) { assert(acted[t] == 1) }
  :: else
  fi;
  REPLAY_END
}
