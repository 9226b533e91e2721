// governor.pml: how many calls are on the device, whose turn is next, and a thread that has it alone.
//
//   Models     src/runtime/admission/governor.cpp: enter, park, enter_copy, park_copy, exclusive, leave,
//              leave_copy, end_exclusive, hand_over, collect, send_aside, release_collected, next_caller,
//              withdraw. src/runtime/admission/owner_words.h. src/runtime/runtime.cpp: enter_on, for
//              callers that own a Turn. src/runtime/streams/stream.cpp: try_turn, turn, end_turn (run
//              `turn`).
//   Safety     A lane has one owner. During a hold nobody else is on the device, with a lane or a copy. A
//              parked caller gets one answer. Each other model overtakes a model's first parked caller
//              once, and once more for a call of its own model that was just leaving, at most. At the end
//              all lanes are free, no copy is out and nobody is parked.
//   Liveness   Every caller gets its Permit or is late, every hold begins, also where the holder wants the
//              Turn of one that is parked (invalid end states). No execution is infinite (ends).
//   Fairness   None is needed.
//   Bound      CALLERS of two models by turns, STREAMERS that own the one Turn when they enter, COPIERS
//              that own it and need no lane, HOLDERS that copy on that stream inside their hold; each comes
//              once, with INSIDE one of them is on the lane at first, with 2 until all others are parked.
//              Deadlines of callers and holders pass at will (LATE).
//   Left out   Lone calls and await_no_lone (process_devices.pml), refuse_parked, set_limit_once.
//
//   Run lanes: safety CALLERS=3 LANES=1 LATE=1
//   Run overtakes: safety CALLERS=4 LANES=1 INSIDE=2
//   Run hold: safety CALLERS=2 HOLDERS=1 LANES=2
//   Run hold_late: safety CALLERS=1 HOLDERS=2 LANES=1 LATE=1
//   Run copies: safety STREAMERS=1 COPIERS=1 HOLDERS=1 LANES=1
//   Run copies_end: ends STREAMERS=1 COPIERS=1 HOLDERS=1 LANES=1
//   Replay lanes: runtime_sim_test CALLERS=3 LANES=1 LATE=1
//   Replay hold: runtime_sim_test CALLERS=2 HOLDERS=1 LANES=2 LATE=1
//   Replay copies: runtime_sim_test STREAMERS=1 COPIERS=2 HOLDERS=1 LANES=1
//   Long overtakes_more: safety CALLERS=4 LANES=1 INSIDE=1
//   Long aside: safety STREAMERS=2 HOLDERS=1 LANES=1
//   Long hold_more: safety CALLERS=2 HOLDERS=2 LANES=2
//   Long aside_more: safety CALLERS=1 STREAMERS=1 COPIERS=1 HOLDERS=1 LANES=1

#include "replay.inc"

#ifndef CALLERS
#define CALLERS 0
#endif
#ifndef STREAMERS
#define STREAMERS 0
#endif
#ifndef COPIERS
#define COPIERS 0
#endif
#ifndef HOLDERS
#define HOLDERS 0
#endif
#ifndef INSIDE
#define INSIDE 0
#endif
#ifndef LATE
#define LATE 0
#endif
#define THREADS (CALLERS + STREAMERS + COPIERS + HOLDERS)
#define FREE 0
#define COLLECTED 20
#define GRANTED 21
#define NONE 50
#define NO_LANE 51
#define NOBODY 52
#define PASSED 53
#define ASIDE 100
#define COPY 101
#define HOLD 102
#define HELD_OFF 128

byte word[LANES];  // FREE, 1 + the owner's model, COLLECTED, GRANTED
bool parked;
byte copies;  // copies_, with HELD_OFF
bool lock;    // of queue_
chan calls0 = [THREADS] of { byte, bool };  // of a model: the caller, whether it steps aside
chan calls1 = [THREADS] of { byte, bool };
chan copying = [THREADS] of { byte, bool };
chan exclusives = [THREADS] of { byte };
byte waiting, holder = NOBODY, collecting = NOBODY, collected;
bool held, calls_first;
bool last_served = true;  // of two models the one served last; `turn` and `served` are their order
byte answer[THREADS];
bool turn;             // of the one stream that callers share
byte on_lanes;  // not in the code, as are the next
bool alone;     // the holder has the device
byte overtaken[2];
byte excused[2];  // calls of the model that were counted as served while another of it was parked
byte over;

inline hold_lock() { atomic { !lock -> lock = true } }

inline let_go() { lock = false }

inline take_parked(as) {
  lane = 0;
  do
  :: lane == LANES -> lane = NONE; break
  :: lane < LANES ->
     if
     :: word[lane] != FREE -> lane++
     :: else ->
        if
        :: STEP(words_take_parked, me, lane, atomic { word[lane] == FREE -> word[lane] = as })
           break
        :: else -> lane++  // reached in long runs only: another thread had looked before
        fi
     fi
  od
}

inline next_caller() {
  d_step {
    if
    :: len(calls0) > 0 && (len(calls1) == 0 || last_served) ->
       calls0 ? who, aside;
       last_served = false;
       overtaken[0] = 0;
       overtaken[1] = overtaken[1] + (len(calls1) > 0 -> 1 : 0)
    :: else ->
       calls1 ? who, aside;
       last_served = true;
       overtaken[1] = 0;
       overtaken[0] = overtaken[0] + (len(calls0) > 0 -> 1 : 0)
    fi;
    assert(overtaken[0] <= 1 + excused[0] && overtaken[1] <= 1 + excused[1]);
    excused[last_served] = 0;
    waiting--;
    owed ! who, lane + 1;
    who = 0
  }
}

inline send_aside_of(queue) {
  n = len(queue);
  do
  :: n == 0 -> break
  :: n > 0 ->
     n--;
     queue ? who, aside;
     if
     :: aside -> owed ! who, ASIDE; gone++
     :: else -> queue ! who, aside
     fi
  od
}

inline collect() {
  do
  :: take_parked(COLLECTED);
     if
     :: lane == NONE -> break
     :: else -> collected++
     fi
  od;
  if
  :: collected != LANES
  :: else ->
     STEP(governor_look_for_copies, me, copies != HELD_OFF, left = (copies != HELD_OFF));
     if
     :: left -> left = false
     :: else ->
        atomic {
          assert(on_lanes == 0);
          held = true;
          alone = true;
          owed ! collecting, HOLD;
          collecting = NOBODY;
          gone = 0;
          send_aside_of(calls0);
          send_aside_of(calls1);
          waiting = waiting - gone;
          send_aside_of(copying);
          who = 0;
          gone = 0;
          aside = false
        }
     fi
  fi
}

inline hand_over() {
  do
  :: held -> break
  :: !held ->
     if
     :: holder == NOBODY && len(exclusives) > 0 && !(calls_first && waiting > 0) ->
        STEP(governor_hold_copies_off, me, 0, atomic {
          exclusives ? holder;
          collecting = holder;
          copies = copies | HELD_OFF
        })
     :: else
     fi;
     if
     :: holder != NOBODY ->
        collect();
        break
     :: else
     fi;
     if
     :: waiting == 0 ->
        STEP(words_unpark, me, 0, parked = false);
        break
     :: else
     fi;
     take_parked(GRANTED);
     if
     :: lane != NONE -> next_caller()
     :: else ->
        if
        :: !calls_first -> break
        :: else -> calls_first = false
        fi
     fi
  od;
  lane = NONE
}

// What Parked::grant() is told: a lane, 0 for a hold, or one of the codes below 0.
#define PLACE(what) (what == ASIDE -> -1 : (what == COPY -> -2 : (what == HOLD -> 0 : what - 1)))

inline give_answers() {
  do
  :: empty(owed) -> break
  :: nempty(owed) ->
     owed ? <t, what>;
     STEP(parked_grant, me, PLACE(what), atomic {
       owed ? t, what;
       assert(answer[t] == 0);
       answer[t] = what;
       t = 0;
       what = 0
     })
  od
}

// Each inline that calls this stands as seldom in a process as can be: the verifier takes long to compile.
inline hand_over_locked() {
  hand_over();
  let_go();
  give_answers()
}

inline release_collected() {
  at = 0;
  do
  :: at == LANES -> break
  :: at < LANES ->
     if
     :: word[at] == COLLECTED ->
        STEP(words_give_back, me, at, word[at] = FREE);
        STEP(words_look_for_parked, me, parked, skip)
     :: else
     fi;
     at++
  od;
  atomic { at = 0; collected = 0; holder = NOBODY; held = false; collecting = NOBODY }
  STEP(governor_count_copies, me, len(copying), copies = copies + len(copying));
  STEP(governor_let_copies_in, me, 0, atomic {
    copies = copies & 127;
    do
    :: nempty(copying) -> copying ? who, aside; owed ! who, COPY
    :: empty(copying) -> break
    od;
    who = 0;
    aside = false
  })
}

// await() and withdraw(). `got`: PASSED where the deadline has passed.
inline await_call() {
  if
  :: answer[me] != 0
  :: LATE ->
     hold_lock();
     withdrawn = false;
     if
     :: atomic { model == 0 && calls0 ?? [eval(me), _] -> calls0 ?? eval(me), _; waiting-- }
        withdrawn = true
     :: atomic { model == 1 && calls1 ?? [eval(me), _] -> calls1 ?? eval(me), _; waiting-- }
        withdrawn = true
     :: atomic { copying ?? [eval(me), _] -> copying ?? eval(me), _ }
        withdrawn = true  // reached in long runs only: copies are not late elsewhere
     :: else
     fi;
     STEP(governor_withdraw, me, withdrawn, skip);
     hand_over_locked();
     if
     :: withdrawn -> got = PASSED
     :: else
     fi
  fi;
  if
  :: withdrawn -> assert(answer[me] == 0)
  :: else -> atomic { answer[me] != 0 -> got = answer[me]; answer[me] = 0 }
  fi;
  withdrawn = false
}

// enter() and enter_copy(): `got` is a lane, NO_LANE, ASIDE or PASSED.
inline enter(steps_aside, for_copy) {
  got = NONE;
  if
  :: for_copy ->
     if
     :: STEP(governor_enter_copy, me, 0, atomic { (copies & HELD_OFF) == 0 -> copies++; got = NO_LANE })
     :: else
     fi
  :: !for_copy && parked
  :: !for_copy && !parked ->
     at = 0;
     do
     :: at == LANES -> break
     :: at < LANES ->
        if
        :: word[at] != FREE -> at++
        :: else ->
           if
           :: STEP(words_take, me, at, atomic {
                word[at] == FREE -> word[at] = 1 + model; got = at; on_lanes++
              })
              break
           :: else -> at++
           fi
        fi
     od;
     at = 0
  fi;
  if
  :: got != NONE
  :: else ->
     hold_lock();
     assert(for_copy || holder != me);
     if
     :: for_copy && (holder == NOBODY || holder == me) ->
        STEP(governor_enter_copy, me, 0, copies++);
        let_go();
        got = NO_LANE
     :: else ->
        if
        :: held && steps_aside ->
           let_go();
           got = ASIDE
        :: else ->
           if
           :: for_copy ->
              STEP(governor_wait_copy, me, 0, copying ! me, steps_aside);
              let_go()
           :: else ->
              STEP(words_park, me, 0, parked = true);
              STEP(governor_wait, me, 0, atomic {
                if
                :: model == 0 -> calls0 ! me, steps_aside
                :: model == 1 -> calls1 ! me, steps_aside
                fi;
                waiting++
              });
              hand_over_locked()
           fi;
           await_call();
           if
           :: got == ASIDE || got == PASSED
           :: got == COPY -> got = NO_LANE
           :: else ->
              STEP(words_pass_to, me, got - 1, atomic {
                got = got - 1;
                assert(word[got] == GRANTED);
                word[got] = 1 + model;
                on_lanes++
              })
           fi
        fi
     fi
  fi
}

inline leave() {
  if
  :: got == NO_LANE ->
     STEP(governor_leave_copy, me, copies == (HELD_OFF | 1), atomic {
       last = (copies == (HELD_OFF | 1));
       copies--
     });
     if
     :: last -> hold_lock()
     :: else
     fi
  :: else ->
     STEP(words_give_back, me, got, atomic { on_lanes--; word[got] = FREE });
     STEP(words_look_for_parked, me, parked, last = parked);
     if
     :: last ->
        hold_lock();
        STEP(governor_served, me, 0, atomic {
          last_served = model;
          excused[model] = excused[model] + ((model == 0 -> len(calls0) : len(calls1)) > 0 -> 1 : 0)
        })
     :: else
     fi
  fi;
  if
  :: last -> hand_over_locked()
  :: else
  fi;
  got = NONE;
  last = false
}

inline on_the_device() { assert(!alone || holder == me) }

proctype Caller(byte me) {
  byte model = me % 2;
  byte got, lane, at, t, who, n, gone;
  chan owed = [THREADS] of { byte, byte };  // the answers that it gives when it has let go
  byte what;
  bool aside, withdrawn, left, last;
  if
  :: INSIDE && me == CALLERS - 1 ->  // it has the lane when the search begins
     INSIDE == 1 || waiting == CALLERS - 1;
     got = 0
  :: else -> enter(false, false)
  fi;
  if
  :: got == PASSED
  :: else ->
     on_the_device();
     leave()
  fi;
  over++
}

// Runtime::enter_on: Turn, then Permit; no Turn is kept through a hold. With `aside` the Turn is owned. A
// round ends with the Permit given back: declined where the Turn was another's, else after the work.
inline enter_on(for_copy) {
  owns = true;
  done = false;
  do
  :: done -> break
  :: !done ->
     if
     :: owns -> atomic { !turn -> turn = true }
     :: else
     fi;
     enter(owns, for_copy);
     if
     :: got == PASSED -> done = true  // reached in long runs only: such callers are not late elsewhere
     :: got == ASIDE ->
        turn = false;
        owns = false
     :: else ->
        if
        :: owns -> done = true
        :: atomic { !owns && !turn -> turn = true }
           done = true
        :: else -> owns = true  // decline()
        fi;
        if
        :: done ->
           on_the_device();
           turn = false
        :: else
        fi;
        leave()
     fi
  od
}

proctype Streamer(byte me; bool copies_only) {
  byte model = me % 2;
  byte got, lane, at, t, who, n, gone;
  chan owed = [THREADS] of { byte, byte };  // the answers that it gives when it has let go
  byte what;
  bool aside, withdrawn, left, last, owns, done;
  enter_on(copies_only);
  over++
}

proctype Holder(byte me) {
  byte lane, at, t, who, n, gone;
  chan owed = [THREADS] of { byte, byte };  // the answers that it gives when it has let go
  byte what;
  bool aside, withdrawn, left;
  hold_lock();
  STEP(words_park, me, 0, parked = true);
  STEP(governor_ask_alone, me, 0, exclusives ! me);
  hand_over_locked();
  if
  :: answer[me] != 0
  :: LATE ->
     hold_lock();
     if
     :: collecting == me ->
        release_collected();
        withdrawn = true
     :: atomic { exclusives ?? [eval(me)] -> exclusives ?? eval(me) }
        withdrawn = true
     :: else
     fi;
     STEP(governor_withdraw, me, withdrawn, skip);
     hand_over_locked()
  fi;
  if
  :: withdrawn -> assert(answer[me] == 0)
  :: else ->
     atomic { answer[me] != 0 -> answer[me] = 0 }
     assert(held && holder == me && on_lanes == 0 && copies == HELD_OFF);
     if
     :: STREAMERS + COPIERS > 0 ->  // a copy of the holder's own: enter_on() by enter_copy(), which finds it
        atomic { !turn -> turn = true }
        hold_lock();
        STEP(governor_enter_copy, me, 0, copies++);
        let_go();
        turn = false;
        STEP(governor_leave_copy, me, 1, copies--);
        hold_lock();
        assert(held);  // hand_over() ends there
        let_go()
     :: else
     fi;
     atomic { assert(held && holder == me && on_lanes == 0 && copies == HELD_OFF); alone = false }
     hold_lock();
     release_collected();
     calls_first = true;
     hand_over_locked()
  fi;
  over++
}

init {
  byte t;
  REPLAY_BEGIN;
  atomic {
    if
    :: INSIDE -> word[0] = 1 + (CALLERS - 1) % 2; on_lanes = 1
    :: else
    fi;
    for (t : 0 .. THREADS - 1) {
      if
      :: t < CALLERS -> run Caller(t)
      :: t >= CALLERS && t < CALLERS + STREAMERS -> run Streamer(t, false)
      :: t >= CALLERS + STREAMERS && t < CALLERS + STREAMERS + COPIERS -> run Streamer(t, true)
      :: t >= THREADS - HOLDERS -> run Holder(t)
      fi
    }
  }
  over == THREADS;
  assert(!parked && copies == 0 && waiting == 0 && holder == NOBODY && !held && !lock && !turn);
  for (t : 0 .. LANES - 1) { assert(word[t] == FREE) };
  REPLAY_END
}
