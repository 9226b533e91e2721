// lone_door.pml: calls that run alone through a door, past the coalescer's lock, beside those that wait.
//
//   Models     src/runtime/admission/lone_door.h. src/runtime/lone_call.cpp: try_run.
//              src/batch/calls/lone.cpp: try_call, Leaving, after_lone, lanes_busy, shut_door, open_door.
//              src/batch/calls/seats.cpp: arrive, idle. src/batch/calls/showing.cpp: try_claim, count_in,
//              show_seats, take_spare. src/batch/calls/leading.cpp: advance, clear_up, take_due.
//   Safety     A lone call and a batch do not run on one lane.
//   Liveness   Whoever waits is told to run (invalid end states); every call ends.
//   Fairness   None is needed.
//   Bound      TRIES callers that try the door first, JOINS that join only, with ROUNDS calls each. One lane.
//              Callers just answered may be expected back (RETURNS); the time for that may be over, or not.
//              The device has a lane more, so that no batch parks beside a call that looks at the door.
//   Left out   Batches of more than one row (coalescer.pml): a seat on show is a batch. Calls that wait for
//              those expected back.
//   Replayed   By coalescer_sim_test.cpp where joining does not pay: each batch is one call, none on show.
//
//   Run claimed: safety TRIES=1 JOINS=2 RETURNS=1
//   Run lone: safety TRIES=2 JOINS=1
//   Run again: safety TRIES=2 ROUNDS=2
//   Run all_end: ends TRIES=1 JOINS=1 RETURNS=1
//   Replay lone: batch_sim_test TRIES=2 JOINS=1 ROUNDS=2
//   Long more: safety TRIES=2 JOINS=2 RETURNS=1

#include "replay.inc"

#ifndef TRIES
#define TRIES 0
#endif
#ifndef JOINS
#define JOINS 0
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef RETURNS
#define RETURNS 0
#endif
#define CALLERS (TRIES + JOINS)
#define NOBODY 30
#define FREE 0
#define CALL 1
#define BATCH 2

bool door = true;  // LoneDoor::open_
byte lane[2];      // OwnerWords; lone calls take the first only
// OpenSeats::word_: whether the spare batch is on show, and who has its seat.
bool shown;
byte seat = NOBODY;
// Coalescer::State, under the lock.
bool lock;
chan forming = [CALLERS] of { byte };
byte busy, inside, lone, returning;
bool lead[CALLERS];
byte running, over;  // the first is not in the code

inline hold() { atomic { !lock -> lock = true } }

inline let_go() { lock = false }

inline run_on_the_lane() {
  atomic { assert(running == 0); running++ }
  running--
}

inline give_back(place) {
  atomic {
    STEP(words_give_back, me, place, lane[place] = FREE);
    STEP(words_look_for_parked, me, 0, skip)
  }
}

inline run_batch() {
  if
  :: STEP(words_take, me, 0, atomic { lane[0] == FREE -> lane[0] = BATCH; mine = 0 })
  :: STEP(words_take, me, 1, atomic { lane[1] == FREE -> lane[1] = BATCH; mine = 1 })
  fi;
  run_on_the_lane();
  give_back(mine)
}

#define LONE (lane[0] == CALL -> 1 : 0)

inline come_in(who) {
  forming ! who;
  inside++;
  returning = (returning > 0 -> returning - 1 : 0)
}

// A batch whose seat is taken is on show no more.
inline count_in() {
  if
  :: shown && seat != NOBODY ->
     come_in(seat);
     shown = false;
     seat = NOBODY;
     news = true
  :: else
  fi
}

inline look_at_lane() { lone = (lone != 0 -> LONE : 0) }

inline take_due() {
  atomic {
    if
    :: len(forming) > 0 ->
       look_at_lane();
       if
       :: STEP(calls_take, me, 1, busy + lone == 0 -> forming ? x);
          busy++;
          lead[x] = true
       :: busy + lone != 0
       fi;
       x = 0
    :: else
    fi
  }
}

// The spare batch, if there is one, while a call that comes now would not run at once.
inline show_seats() {
  atomic {
    look_at_lane();
    if
    :: busy + lone + len(forming) + returning > 0 -> shown = true
    :: busy + lone + len(forming) + returning > 0
    :: else -> count_in(); shown = false
    fi
  }
}

inline clear_up() {
  atomic {
    if
    :: inside == 0 && returning > 0 -> returning = 0
    :: true
    fi
  }
  atomic {
    if
    :: inside == 0 && returning == 0 -> count_in(); shown = false
    :: else
    fi
  }
}

inline open_door() {
  if
  :: busy + inside + returning == 0 -> STEP(door_open, me, 1, door = true)
  :: else
  fi
}

inline advance() {
  do
  :: atomic { count_in(); news = false }
     take_due();
     show_seats();
     if
     :: news
     :: else ->
        clear_up();
        if
        :: news
        :: else -> break
        fi
     fi
  od;
  open_door()
}

inline try_call() {
  STEP(door_look, me, door, open = door);
  if
  :: open ->
     STEP(door_look, me, door, open = door);  // try_run()
     if
     :: STEP(words_take, me, 0, atomic { open && lane[0] == FREE -> lane[0] = CALL });
        STEP(door_look, me, door, open = door);  // again
        if
        :: open -> run_on_the_lane(); ran = true
        :: else
        fi;
        give_back(0)
     :: !open || lane[0] != FREE
     fi;
     STEP(door_look, me, door, open = door);  // Leaving
     if
     :: !open -> hold(); advance(); let_go()
     :: else
     fi
  :: else
  fi
}

inline shut_door() {
  STEP(door_look, me, door, open = door);
  if
  :: open ->
     STEP(door_shut, me, 0, door = false);
     lone = LONE;  // of a lane after the other: said when all are looked at
     STEP(calls_count_lone, me, lone, skip)
  :: else
  fi
}

// With the lock held at the end: at_once, or with a batch to sit down in.
inline come() {
  do
  :: hold();
     atomic { count_in() }
     shut_door();
     atomic {
       look_at_lane();
       at_once = (busy + lone + len(forming) + returning == 0)
     }
     if
     :: at_once || fresh -> break
     :: !at_once && !fresh ->  // it makes one
        let_go();
        fresh = true
     fi
  od;
  fresh = false
}

proctype Caller(byte me; bool tries) {
  byte x, times, mine;
  bool news, ran, open, fresh, at_once;
  do
  :: times == ROUNDS -> break
  :: else ->
     times++;
     ran = false;
     if
     :: tries -> try_call()
     :: else
     fi;
     if
     :: ran -> goto answered
     :: else
     fi;
     if
     :: STEP(seats_claim, me, 0, atomic { shown && seat == NOBODY -> seat = me })  // not replayed: none shown
        hold();
        advance();
        let_go()
     :: !shown || seat != NOBODY ->
        come();
        if
        :: at_once ->
           STEP(calls_run_at_once, me, 0, inside++);
           busy++;
           let_go();
           goto runs
        :: else -> STEP(calls_sit_down, me, 0, come_in(me))
        fi;
        advance();
        let_go()
     fi;
     lead[me] -> lead[me] = false;
runs:
     run_batch();
     hold();
     atomic { count_in() }
     STEP(calls_end_run, me, 0, busy--);
     inside--;
     if
     :: RETURNS > 0 -> returning++
     :: true
     fi;
     advance();
     let_go();
answered:
     skip
  od;
  over++
}

init {
  byte t;
  REPLAY_BEGIN;
  atomic {
    do
    :: t == CALLERS -> break
    :: t < CALLERS -> run Caller(t, t < TRIES); t++
    od
  }
  over == CALLERS;
  assert(busy + inside + running == 0);
  REPLAY_END
}
