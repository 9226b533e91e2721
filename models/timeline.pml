// timeline.pml: threads that sleep until a counter is far enough, and the one that advances it.
//
//   Models     src/device/timeline.cpp: wait, stamp, advance, ring_at, fail. src/base/condition.cpp: wait
//              and ring, with the count that the kernel compares. src/base/sync.h: wait_until.
//              src/base/bell.h.
//   Safety     wait() says ok only when its value is reached, the cause only when the timeline has failed
//              and the cause is there, deadline only when it passed. A stamp that was there before an
//              advance is filled before anybody can see its value reached. At the end every stamp is
//              filled.
//   Liveness   Every wait() returns, and what is left to the reaper is dropped, as ring_at() promised: no
//              thread sleeps for ever (invalid end states), and no execution is infinite (ends).
//   Fairness   None is needed.
//   Bound      WAITERS that wait and STAMPERS for the values 2 and 1 by turns, RINGERS for 2; the
//              completion path advances to 1, then to 2 or fails; the first waiter's deadline may pass
//              (LATE).
//   Left out   Looking before sleeping (begin_looking): it reads what wait() reads anyway. Futexes wake for
//              no reason with SPURIOUS only: a waiter looks again then.
//
//   Run wait: safety WAITERS=2
//   Run wait_late: safety WAITERS=2 LATE=1 SPURIOUS=1
//   Run stamp: safety WAITERS=1 STAMPERS=2
//   Run ring: safety WAITERS=0 RINGERS=2
//   Run all_end: ends WAITERS=1 RINGERS=1
//   Replay wait: device_sim_test WAITERS=2 STAMPERS=1 LATE=1 SPURIOUS=1
//   Replay ring: device_sim_test WAITERS=1 RINGERS=2 SPURIOUS=1
//   Long wait_more: safety WAITERS=3 LATE=1
//   Long stamp_more: safety WAITERS=2 STAMPERS=2
//   Long ring_more: safety WAITERS=1 RINGERS=1 STAMPERS=1

#include "replay.inc"

#ifndef SPURIOUS
#define SPURIOUS 0
#endif
#ifndef STAMPERS
#define STAMPERS 0
#endif
#ifndef RINGERS
#define RINGERS 0
#endif
#ifndef LATE
#define LATE 0
#endif
#define THREADS (WAITERS + STAMPERS + RINGERS)
#define VALUE(thread) (1 + (thread + 1) % 2)
#define OK 1
#define CAUSE 2
#define DEADLINE 3

byte reached;
bool failed;
bool cause;           // Waiters::cause is written
byte parked;          // parked_
byte stamped;         // stamped_
byte rings_at;        // rings_at_
bool lock;            // of waiters_
byte rings;           // Condition::rings_
byte sleepers;        // Condition::sleepers_
bool asleep[THREADS]; // in the kernel's queue of rings_
bool listed[THREADS]; // Waiters::stamps
bool filled[THREADS];
bool early[THREADS];  // the stamp was listed when the advance to its value began; not in the code
byte bell;            // Bell::rings_
bool pending[THREADS]; // to be dropped by the reaper once value 2 is reached
byte over;

inline hold() { atomic { !lock -> lock = true } }

inline let_go() { lock = false }

// Under the lock: only lock holders touch the list. The step says how many are left.
inline fill_stamps(value) {
  atomic {
    left = 0;
    for (i : 0 .. THREADS - 1) {
      if
      :: listed[i] && VALUE(i) <= value -> filled[i] = true; listed[i] = false; stamped--
      :: listed[i] && VALUE(i) > value -> left++
      :: else
      fi
    }
    i = 0;
    STEP(timeline_fill_stamps, me, left, skip)
  }
}

inline notify_all() {  // Condition::ring
  STEP(condition_ring, me, 0, rings++);
  if
  :: STEP(condition_look_for_sleepers, me, 1, sleepers != 0) ->
     atomic {  // the kernel wakes all
       for (i : 0 .. THREADS - 1) { asleep[i] = false }
       i = 0
     }
  :: STEP(condition_look_for_sleepers, me, 0, sleepers == 0)
  fi
}

// Held::wait_until with Condition::wait in it; `by` says why it ended.
inline wait_until(value) {
  do
  :: STEP(timeline_look_parked, me, 1, reached >= value) -> by = OK; break
  :: STEP(timeline_look_parked, me, 0, reached < value) ->
     if
     :: failed -> by = CAUSE; break
     :: LATE && me == 0 && !failed -> late = true; by = DEADLINE; break
     :: !failed && !late ->
        STEP(condition_see_rings, me, 0, seen = rings);
        STEP(condition_sleep, me, 0, sleepers++);
        let_go();
        if
        :: atomic { rings == seen -> asleep[me] = true }
        :: rings != seen
        fi;
        if
        :: !asleep[me]
        :: atomic { LATE && me == 0 && asleep[me] -> asleep[me] = false; late = true }
        :: atomic { SPURIOUS && asleep[me] -> asleep[me] = false }
        fi;
        STEP(condition_wake, me, 0, sleepers--);
        hold()
     fi
  od
}

proctype Waiter(byte me) {
  byte value = VALUE(me);
  byte seen, by, said;
  bool late;
  if
  :: reached >= value -> said = OK
  :: else ->
     if
     :: failed ->
        if
        :: reached >= value -> said = OK
        :: else -> said = CAUSE
        fi
     :: else ->
        hold();
        STEP(timeline_park, me, 0, parked++);
        wait_until(value);
        STEP(timeline_unpark, me, 0, parked--);
        let_go();
        if
        :: reached >= value -> said = OK
        :: else -> said = by
        fi
     fi
  fi;
  STEP(test_waited, me, said, atomic {
    assert(said != OK || reached >= value);
    assert(said != CAUSE || (failed && cause));
    assert(said != DEADLINE || late);
    over++
  })
}

proctype Stamper(byte me) {
  hold();
  STEP(timeline_count_stamp, me, 0, stamped++);
  if
  :: STEP(timeline_look_stamped, me, 1, reached >= VALUE(me)) -> stamped--; filled[me] = true
  :: STEP(timeline_look_stamped, me, 0, reached < VALUE(me)) ->
     if
     :: failed -> stamped--; filled[me] = true
     :: else -> listed[me] = true
     fi
  fi;
  let_go();
  over++
}

// Allocator::recycle: leaves something to the reaper, unless the bell may have rung before.
proctype Ringer(byte me) {
  bool awaited;
  pending[me] = true;
  hold();
  STEP(timeline_ring_at, me, 2, rings_at = 2);  // the larger of both
  let_go();
  if
  :: STEP(timeline_look_ahead, me, 1, reached < 2) ->
     if
     :: failed -> awaited = false
     :: else -> awaited = true
     fi
  :: STEP(timeline_look_ahead, me, 0, reached >= 2) -> awaited = false
  fi;
  if
  :: !awaited -> pending[me] = false
  :: else
  fi;
  over++
}

proctype Reaper() {  // Runtime::reap
  byte seen, i;
  do
  :: seen = bell;
     i = 0;
     do
     :: i == THREADS -> break
     :: i < THREADS ->
        if
        :: reached >= 2 || failed -> pending[i] = false
        :: else
        fi;
        i++
     od;
     i = 0;
end_wait:
     bell != seen  // Bell::wait
  od
}

inline advance(value) {
  atomic {
    before = reached;
    for (i : 0 .. THREADS - 1) { early[i] = listed[i] && VALUE(i) <= value }
    i = 0;
    left = 0
  }
  if
  :: STEP(timeline_look_for_stamps, me, 1, stamped != 0) ->
     hold();
     fill_stamps(value);
     let_go()
  :: STEP(timeline_look_for_stamps, me, 0, stamped == 0)
  fi;
  STEP(timeline_reach, me, value, atomic {
    reached = value;
    for (i : 0 .. THREADS - 1) { assert(!early[i] || filled[i]) }
    i = 0
  });
  STEP(timeline_look_for_parked, me, parked != 0, sleeps = (parked != 0));
  if
  :: sleeps || stamped != left ->
     hold();
     fill_stamps(value);
     let_go()
  :: else
  fi;
  if
  :: sleeps -> notify_all()
  :: else
  fi;
  if
  :: STEP(timeline_look_for_bells, me, 1, rings_at > before) -> STEP(bell_ring, me, 0, bell++)
  :: STEP(timeline_look_for_bells, me, 0, rings_at <= before)
  fi
}

inline fail() {
  hold();
  STEP(timeline_tell_cause, me, 0, cause = true);
  STEP(timeline_fail, me, 0, failed = true);
  fill_stamps(255);
  let_go();
  notify_all();
  STEP(bell_ring, me, 0, bell++)
}

proctype Completion() {
  byte me = THREADS;
  byte before, left, i;
  bool sleeps;
  advance(1);
  if
  :: advance(2)
  :: fail()
  fi;
  over++
}

init {
  byte t;
  REPLAY_BEGIN;
  atomic {
    for (t : 0 .. THREADS - 1) {
      if
      :: t < WAITERS -> run Waiter(t)
      :: t >= WAITERS && t < WAITERS + STAMPERS -> run Stamper(t)
      :: t >= WAITERS + STAMPERS -> run Ringer(t)
      fi
    }
    run Completion();
    if
    :: RINGERS > 0 -> run Reaper()
    :: else
    fi
  }
  over == THREADS + 1;
  timeout;
  assert(!lock && parked == 0 && sleepers == 0 && stamped == 0);
  for (t : 0 .. THREADS - 1) {
    assert(t < WAITERS || t >= WAITERS + STAMPERS || filled[t]);
    assert(!pending[t])
  };
  REPLAY_END
}
