// process_devices.pml: a model, a runtime and a process that end beside calls, and a child of fork().
//
//   Models     src/runtime/admission/gate.cpp: enter, leave, wait_empty. src/runtime/model.cpp: close.
//              src/runtime/lone_call.cpp: try_run. src/runtime/admission/governor.cpp: try_enter_lone,
//              await_no_lone, leave. src/runtime/admission/lone_door.h. src/api/process_devices.cpp: get,
//              note_opened, close_all. src/base/fork.h, as Runtime, Governor, Model and the lease's end ask
//              it.
//   Safety     Once close() has returned ok no call of the model runs, for good. Once close_all() has
//              returned every device that was opened is closed. A forked child takes no lock of its
//              parent's.
//   Liveness   close() returns though calls come and go; who waits for a device that another thread makes
//              gets it or is refused; the child's calls return (invalid end states).
//   Fairness   None is needed.
//   Bound      CALLERS through the gate, LONE calls that pass it by a lane's word, one that closes. OPENERS
//              of devices beside exit(). A parent with a lock that it takes twice, and a child forked at
//              any time (FORKS).
//   Left out   Deadlines of close() and exit(): what they end early is said in docs/limitations.md. Threads
//              of the parent, which do not exist in a child. Batches and leaders, which end by the
//              coalescer.
//
//   Run close: safety CALLERS=2 LONE=1
//   Run close_lone: safety LONE=2
//   Run leave: safety CALLERS=3
//   Run exits: safety OPENERS=3
//   Run fork: safety FORKS=1
//   Run all_end: ends CALLERS=1 LONE=1
//   Replay gate: runtime_sim_test CALLERS=2
//   Replay lone: runtime_sim_test LONE=1 CALLERS=1
//   Long close_more: safety CALLERS=2 LONE=2

#include "replay.inc"

#ifndef CALLERS
#define CALLERS 0
#endif
#ifndef LONE
#define LONE 0
#endif
#ifndef OPENERS
#define OPENERS 0
#endif
#ifndef FORKS
#define FORKS 0
#endif
#define FREE 0
#define CALL 1
byte over;

// ---- a model: Gate::word_ (CLOSED beside the calls inside), its lock and Condition; a lane's word

#define CLOSED 128
byte gate;
bool emptied_lock, closer_sleeps;
byte lane = FREE;
bool parked, queue_lock, drainer_sleeps;
bool draining;
bool closed_for_good;  // not in the code, as is the next
byte running;

inline run_call() {
  atomic { assert(!closed_for_good); running++ }
  atomic { assert(!closed_for_good); running-- }
}

inline leave_gate() {
  if
  :: STEP(gate_leave, me, 0, atomic { (gate & CLOSED) == 0 -> gate-- })
  :: (gate & CLOSED) != 0 ->
     atomic { !emptied_lock -> emptied_lock = true }
     STEP(gate_leave_closed, me, gate == (CLOSED | 1), atomic { last = (gate == (CLOSED | 1)); gate-- });
     if
     :: last -> closer_sleeps = false  // notify_all()
     :: else
     fi;
     emptied_lock = false
  fi
}

proctype Caller(byte me) {
  bool passed, last;
  STEP(gate_enter, me, (gate & CLOSED) == 0, atomic { passed = ((gate & CLOSED) == 0); gate++ });
  if
  :: passed -> run_call()
  :: else
  fi;
  leave_gate();
  over++
}

proctype LoneCaller(byte me) {  // try_run: with the lane, it looks at the gate again
  byte times;
  bool tell, shut;
  do
  :: times == 2 -> break
  :: times < 2 ->
     if
     :: parked -> break
     :: else
     fi;
     if
     :: lane != FREE -> break
     :: else
     fi;
     if
     :: STEP(words_take, me, 0, atomic { lane == FREE -> lane = CALL })
     :: lane != FREE -> break
     fi;
     STEP(gate_look_closed, me, (gate & CLOSED) != 0, shut = ((gate & CLOSED) != 0));
     if
     :: shut
     :: else -> run_call()
     fi;
     STEP(words_give_back, me, 0, lane = FREE);
     STEP(words_look_for_parked, me, parked, tell = parked);
     if
     :: tell ->
        atomic { !queue_lock -> queue_lock = true }
        if
        :: draining -> drainer_sleeps = false  // notify_all()
        :: else -> STEP(words_unpark, me, 0, parked = false)  // hand_over()
        fi;
        queue_lock = false
     :: else
     fi;
     times++
  od;
  over++
}

proctype Closer(byte me) {  // Model::close
  bool empty_now;
  STEP(gate_close, me, 0, gate = gate | CLOSED);
  atomic { !emptied_lock -> emptied_lock = true }
  do
  :: STEP(gate_look, me, (gate & ~CLOSED) == 0, empty_now = ((gate & ~CLOSED) == 0));
     if
     :: empty_now -> break
     :: else
     fi;
     atomic { closer_sleeps = true; emptied_lock = false }
     atomic { !closer_sleeps && !emptied_lock -> emptied_lock = true }
  od;
  emptied_lock = false;
  if
  :: lane != CALL
  :: else ->
     atomic { !queue_lock -> queue_lock = true }
     draining = true;
     STEP(words_park, me, 0, parked = true);
     do
     :: lane != CALL -> break
     :: else ->
        atomic { drainer_sleeps = true; queue_lock = false }
        atomic { !drainer_sleeps && !queue_lock -> queue_lock = true }
     od;
     draining = false;
     STEP(words_unpark, me, 0, parked = false);  // hand_over()
     queue_lock = false
  fi;
  atomic { assert(running == 0); closed_for_good = true }
  over++
}

// ---- a process: Table of process_devices.cpp, each critical section one step

bool making, entry, ended;
bool listed[OPENERS + 1], open[OPENERS + 1];
bool asleep[OPENERS + 1];

inline wake_getters() {
  atomic {
    for (i : 0 .. OPENERS) { asleep[i] = false }
    i = 0
  }
}

proctype Getter(byte me) {
  byte i;
  bool has_it, refused;
  do
  :: atomic {
       if
       :: ended -> refused = true
       :: !ended && !making ->
          if
          :: entry -> has_it = true
          :: else -> making = true
          fi
       :: else -> asleep[me] = true
       fi
     }
     if
     :: !asleep[me] -> break
     :: asleep[me] -> !asleep[me]
     fi
  od;
  if
  :: refused || has_it
  :: else ->
     open[me] = true;  // make(): the runtime, and its threads
     atomic {  // note_opened()
       if
       :: ended -> refused = true
       :: else -> listed[me] = true
       fi
     }
     if
     :: refused -> open[me] = false  // it throws, and the runtime ends
     :: else -> entry = true
     fi;
     making = false;
     wake_getters()
  fi;
  over++
}

proctype Exit() {  // close_all()
  byte i;
  bool mine[OPENERS + 1];
  atomic {
    ended = true;
    entry = false;
    for (i : 0 .. OPENERS) { mine[i] = listed[i]; listed[i] = false }
    i = 0
  }
  do
  :: i > OPENERS -> break
  :: i <= OPENERS ->
     if
     :: mine[i] -> open[i] = false
     :: else
     fi;
     i++
  od;
  over++
}

// ---- fork(): the child has the lock as it was, and nobody who would let go of it

bool lock, child_lock, forked;
byte child_calls;

proctype Parent() {
  byte times;
  do
  :: times == 2 -> break
  :: times < 2 ->
     atomic { !lock -> lock = true }
     lock = false;
     times++
  od;
  over++
}

inline in_child() {
  if
  :: forked -> child_calls++  // fork_generation() differs: refused, or left where it is
  :: else ->
     atomic { !child_lock -> child_lock = true }
     child_lock = false
  fi
}

proctype Child() {
  atomic { child_lock = lock; forked = true }  // the handler in the child adds to fork_count
  in_child();  // a call
  in_child();  // a lease's end
  in_child();  // Model::close, and its end
  in_child();  // the Runtime's end
  over++
}

init {
  byte t;
  REPLAY_BEGIN;
  atomic {
    do
    :: t == CALLERS -> break
    :: t < CALLERS -> run Caller(t); t++
    od;
    t = 0;
    do
    :: t == LONE -> break
    :: t < LONE -> run LoneCaller(CALLERS + t); t++
    od;
    if
    :: CALLERS + LONE > 0 -> run Closer(CALLERS + LONE)
    :: else -> over++
    fi;
    t = 0;
    do
    :: t == OPENERS -> break
    :: t < OPENERS -> run Getter(t); t++
    od;
    if
    :: OPENERS > 0 -> run Exit()
    :: else -> over++
    fi;
    if
    :: FORKS -> run Parent(); run Child()
    :: else -> over = over + 2
    fi
  }
  over == CALLERS + LONE + OPENERS + 4;
  assert((gate & ~CLOSED) == 0 && lane == FREE && running == 0);
  for (t : 0 .. OPENERS) { assert(!open[t]) };
  REPLAY_END
}
