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
//   Left out   Batches of more than one row (coalescer.pml): a seat on show is a batch. Calls that wait for
//              those expected back.
//
//   Run claimed: safety TRIES=1 JOINS=2 RETURNS=1
//   Run lone: safety TRIES=2 JOINS=1
//   Run again: safety TRIES=2 ROUNDS=2
//   Run all_end: ends TRIES=1 JOINS=1 RETURNS=1
//   Long more: safety TRIES=2 JOINS=2 RETURNS=1

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

bool door = true;  // LoneDoor::open_
byte lane = FREE;
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

inline look_at_lane() { lone = (lone != 0 && lane == CALL -> 1 : 0) }

inline take_due() {
  atomic {
    if
    :: len(forming) > 0 ->
       look_at_lane();
       if
       :: busy + lone == 0 -> forming ? x; busy++; lead[x] = true
       :: else
       fi;
       x = 0
    :: else
    fi
  }
}

// The spare batch, while a call that comes now would not run at once.
inline show_seats() {
  atomic {
    look_at_lane();
    if
    :: busy + lone + len(forming) + returning > 0 -> shown = true
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
  :: busy + inside + returning == 0 -> door = true
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

proctype Caller(byte me; bool tries) {
  byte x, times;
  bool news, ran;
  do
  :: times == ROUNDS -> break
  :: else ->
     times++;
     ran = false;
     if
     :: tries && door ->
        if
        :: atomic { lane == FREE -> lane = CALL }
           if
           :: door -> run_on_the_lane(); ran = true  // it looks again
           :: else
           fi;
           lane = FREE
        :: lane != FREE
        fi;
        if
        :: !door -> hold(); advance(); let_go()
        :: else
        fi
     :: !tries || !door
     fi;
     if
     :: ran -> goto answered
     :: else
     fi;
     if
     :: atomic { shown && seat == NOBODY -> seat = me }
        hold();
        advance();
        let_go()
     :: !shown || seat != NOBODY ->
        hold();
        atomic { count_in() }
        if
        :: door ->
           door = false;
           lone = (lane == CALL -> 1 : 0)
        :: else -> atomic { look_at_lane() }
        fi;
        if
        :: busy + lone + len(forming) + returning == 0 ->
           inside++;
           busy++;
           let_go();
           goto runs
        :: else -> come_in(me)
        fi;
        advance();
        let_go()
     fi;
     lead[me] -> lead[me] = false;
runs:
     run_on_the_lane();
     hold();
     atomic { count_in() }
     busy--;
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
  atomic {
    do
    :: t == CALLERS -> break
    :: t < CALLERS -> run Caller(t, t < TRIES); t++
    od
  }
  over == CALLERS;
  assert(busy + inside + running == 0)
}
