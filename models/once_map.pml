// once_map.pml: one make per key however many ask.
//
//   Models     src/base/once_map.h: probe, join_or_make, join, leads_to, land, erase_if. Readers
//              without a lock are in read_epoch.pml.
//   Safety     While no key is erased, one make of it runs. A waiter gets the outcome of the flight that it
//              joined. A value that was found is the key's. At the end nobody is a waiter.
//   Liveness   Every call returns, also where makes ask for each other's keys (invalid end states). No
//              execution is infinite (ends).
//   Fairness   None is needed.
//   Bound      THREADS that ask for KEYS keys in turn; makes fail, and ask for the next key (NESTED), at
//              will; deadlines pass (LATE) and an eraser comes (ERASES) at will.
//   Left out   Hashes and probing, limits and what they evict. Tables of flights are exact.
//
//   Run flights: safety THREADS=3 KEYS=1 LATE=1 ERASES=1
//   Run nested: safety THREADS=2 KEYS=2 NESTED=1 LATE=0
//   Run flights_end: ends THREADS=2 KEYS=2 NESTED=1 LATE=1 ERASES=1
//   Replay flights: base_sim_test THREADS=3 KEYS=1 LATE=1 ERASES=1
//   Replay nested: base_sim_test THREADS=3 KEYS=2 NESTED=1
//   Long nested_more: safety THREADS=3 KEYS=2 NESTED=1 ERASES=1

#include "replay.inc"

#ifndef KEYS
#define KEYS 1
#endif
#ifndef NESTED
#define NESTED 0
#endif
#ifndef LATE
#define LATE 0
#endif
#ifndef ERASES
#define ERASES 0
#endif
#define FOUND 1
#define FAILED 2
#define CIRCLE 3
#define TIMED_OUT 4
#define DEEPEST 4  // an erased flight is not found: its make may come back to its key once
#define FLIGHT(thread, depth) (1 + (thread) * DEEPEST + (depth))
#define MAKER(flight) (((flight) - 1) / DEEPEST)

byte over;

// Each critical section of state_ is one step, each of a flight's outcome one; but probe() sees present[]
// without the lock, so that replays have several STEPs in one.

bool busy;  // state_'s lock
bool present[KEYS];
byte flight[KEYS];            // State::flights: 0, or the flight's number
byte waits_for[THREADS + 1];  // State::waits
byte joined_to[THREADS + 1];  // the Ref that a joiner holds until it has the outcome
byte told[THREADS + 1];       // Flight::outcome, for each who joined
byte making[KEYS];            // not in the code
bool erased;                  // not in the code

// From the flight along who waits for whom.
inline leads_to(first) {
  circle = false;
  link = first;
  do
  :: link == 0 -> break
  :: link != 0 && MAKER(link) == me -> circle = true; break
  :: link != 0 && MAKER(link) != me -> link = waits_for[MAKER(link)]
  od;
  link = 0
}

inline join_or_make() {
  atomic {
    !busy -> busy = true;
    if
    :: present[key] -> STEP(once_map_find_landed, me, 0, result = FOUND)
    :: else ->
       if
       :: flight[key] == 0 ->
          flight[key] = FLIGHT(me, depth);
          making[key]++;
          assert(making[key] == 1 || erased);
          STEP(once_map_board, me, 0, result = 0)
       :: else ->
          leads_to(flight[key]);
          if
          :: circle -> STEP(once_map_refuse_circle, me, 0, result = CIRCLE)
          :: else ->
             waits_for[me] = flight[key];
             joined_to[me] = flight[key];
             told[me] = 0;
             STEP(once_map_board, me, 1, joins = true)
          fi
       fi
    fi;
    busy = false
  }
}

inline join() {
  if
  :: STEP(once_map_get_outcome, me, told[me] == FOUND, atomic {
       told[me] != 0 -> result = told[me]; joined_to[me] = 0; told[me] = 0
     })
  :: atomic { LATE && told[me] == 0 -> joined_to[me] = 0 }
     STEP(once_map_wait_no_longer, me, 0, atomic { !busy -> waits_for[me] = 0; result = TIMED_OUT })
  fi;
  joins = false
}

inline land() {
  atomic {
    !busy -> busy = true;
    assert(result == FOUND || result == FAILED);
    making[key]--;
    wanted = (flight[key] == FLIGHT(me, depth));
    if
    :: wanted ->
       flight[key] = 0;
       if
       :: result == FOUND -> STEP(once_map_insert, me, 0, present[key] = true)
       :: else
       fi
    :: else
    fi;
    for (i : 0 .. THREADS) {
      if
      :: waits_for[i] == FLIGHT(me, depth) -> waits_for[i] = 0
      :: else
      fi
    }
    i = 0;
    STEP(once_map_land, me, wanted, busy = false);
    wanted = false
  }
  STEP(once_map_tell_outcome, me, result == FOUND, atomic {  // and who waits for it
    for (i : 0 .. THREADS) {
      if
      :: joined_to[i] == FLIGHT(me, depth) ->
         assert(told[i] == 0 && i != me);
         told[i] = result
      :: else
      fi
    }
    i = 0
  })
}

// get_or_make(), whose make may call it for another key.
proctype Asker(byte me) {
  byte key = me % KEYS;
  byte depth, result, link, i;
  bool circle, joins, wanted, makes[DEEPEST];
  do
  :: true ->
     result = (present[key] -> FOUND : 0);  // in a table that may be an older one at the next step
     if
     :: STEP(once_map_probe, me, 1, result == FOUND)
     :: STEP(once_map_probe, me, 0, result == 0) ->
        join_or_make();
        if
        :: joins -> join()
        :: else
        fi;
        if
        :: result == 0 ->
           makes[depth] = true;
           if
           :: result = FOUND
           :: result = FAILED
           :: NESTED ->
              atomic { assert(depth + 1 < DEEPEST); depth++; key = (key + 1) % KEYS }
           fi
        :: else
        fi
     fi;
     do  // a result of the key asked for last: its make, and those around it, go on
     :: result != 0 && makes[depth] ->
        if
        :: result != FOUND -> result = FAILED
        :: else
        fi;
        land();
        makes[depth] = false
     :: result != 0 && !makes[depth] ->
        assert(result != CIRCLE || depth > 0);
        if
        :: depth == 0 -> goto done
        :: else -> atomic { depth--; key = (key + KEYS - 1) % KEYS }
        fi
     :: result == 0 -> break
     od
  od;
done:
  assert(waits_for[me] == 0 && joined_to[me] == 0);
  over++
}

proctype Eraser() {
  byte me = THREADS;
  atomic {
    !busy -> busy = true;
    erased = true;
    if
    :: present[0] -> STEP(once_map_remove, me, 0, present[0] = false)
    :: else
    fi;
    flight[0] = 0;
    STEP(once_map_erase, me, 0, busy = false)
  }
  over++
}

init {
  byte t;
  REPLAY_BEGIN;
  atomic {
    for (t : 0 .. THREADS - 1) { run Asker(t) }
    if
    :: ERASES -> run Eraser()
    :: else -> over++
    fi
  }
  over == THREADS + 1;
  for (t : 0 .. KEYS - 1) { assert(making[t] == 0 && flight[t] == 0) };
  REPLAY_END
}
