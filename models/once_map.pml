// once_map.pml: one make per key however many ask, and readers that take no lock.
//
//   Models     src/base/once_map.h: probe, join_or_make, join, leads_to, land, insert, evict, retire, renew,
//              erase_if, settle. src/base/read_epoch.h: enter, Section; src/base/read_epoch.cpp: passed.
//   Safety     While no key is erased, one make of it runs. A waiter gets the outcome of the flight that it
//              joined. A value that was found is the key's. No reader looks at a table or a node that is
//              freed; erase_if() returns when what it dropped is freed. At the end nobody is a waiter.
//   Liveness   Every call returns, also where makes ask for each other's keys (invalid end states). No
//              execution is infinite, but for an eraser that waits for a reader inside (ends, ends_fairly).
//   Fairness   Weak, for the eraser: a reader inside goes on.
//   Bound      `flights`: THREADS that ask for KEYS keys in turn; makes fail, and ask for the next key
//              (NESTED), at will; deadlines pass (LATE) and an eraser comes (ERASES) at will. `reclaim`:
//              READERS that probe PROBES times, a writer of INSERTS under a limit of one entry, the third
//              of which makes a table anew, and an eraser.
//   Left out   Hashes and probing. CLOCK's choice: with one entry left the older one goes. One stripe of
//              counters, where two readers meet; stripes are looked at alike. Tables of flights are exact.
//
//   Run flights: safety THREADS=3 KEYS=1 LATE=1 ERASES=1
//   Run nested: safety THREADS=2 KEYS=2 NESTED=1 LATE=0
//   Run flights_end: ends THREADS=2 KEYS=2 NESTED=1 LATE=1 ERASES=1
//   Run reclaim: safety READERS=2 INSERTS=2
//   Run reclaim_again: safety READERS=1 PROBES=2 INSERTS=3
//   Run reclaim_ends: ends_fairly READERS=1 INSERTS=3
//   Replay flights: base_sim_test THREADS=3 KEYS=1 LATE=1 ERASES=1
//   Replay nested: base_sim_test THREADS=3 KEYS=2 NESTED=1
//   Long nested_more: safety THREADS=3 KEYS=2 NESTED=1 ERASES=1
//   Long reclaim_more: safety READERS=2 INSERTS=3

#include "replay.inc"

#ifndef THREADS
#define THREADS 0
#endif
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
#ifndef READERS
#define READERS 0
#endif
#ifndef INSERTS
#define INSERTS 0
#endif
#ifndef PROBES
#define PROBES 1
#endif
#define FOUND 1
#define FAILED 2
#define CIRCLE 3
#define TIMED_OUT 4
#define DEEPEST 4  // an erased flight is not found: its make may come back to its key once
#define FLIGHT(thread, depth) (1 + (thread) * DEEPEST + (depth))
#define MAKER(flight) (((flight) - 1) / DEEPEST)

byte over;

// ---- flights: each critical section of state_ is one step, each of a flight's outcome one; but probe() sees
// present[] without the lock, so that replays have several STEPs in one

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

proctype FlightEraser() {
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

// ---- reclaim: the steps that readers see are steps here, too

#define TABLES 3
#define SLOTS 2             // of a table, that it uses
#define EMPTY 9
#define GONE 8
#define RETIREMENTS 6
byte table;                 // table_: the number of the published one
byte slot[TABLES * SLOTS];  // a node, EMPTY or GONE
byte used;                  // Table::used, of the published one
byte tables;                // that were made, but for the first
bool freed_table[TABLES], freed_node[EMPTY];
byte counters[2];           // ReadEpoch's, by parity
bool parity;
bool state_lock;
byte retirements, draining_up_to, freed;
byte retired_node[RETIREMENTS], retired_table[RETIREMENTS];  // what went with each
bool turned;

proctype Reader() {
  byte at, node, times, i;
  bool mine;
  do
  :: times == PROBES -> break
  :: times < PROBES ->
     mine = parity;
     counters[mine]++;
     at = table;
     do  // Table::find()
     :: i == SLOTS -> break
     :: i < SLOTS ->
        atomic { assert(!freed_table[at]); node = slot[at * SLOTS + i]; i++ }
        if
        :: node == EMPTY -> break
        :: node == GONE
        :: node < GONE -> atomic { assert(!freed_node[node]) }
        fi
     od;
     atomic { counters[mine]--; times++; at = 0; node = 0; mine = false; i = 0 }
  od;
  over++
}

inline hold() { atomic { !state_lock -> state_lock = true } }

// Each is under the lock; readers see the last store of each.
inline renew() {
  atomic {
    fresh = tables + 1;
    tables = fresh;
    live = 0;
    for (k : 0 .. SLOTS - 1) {
      if
      :: slot[table * SLOTS + k] < GONE -> slot[fresh * SLOTS + live] = slot[table * SLOTS + k]; live++
      :: else
      fi
    }
    retirements++;
    retired_table[retirements] = table;
    retired_node[retirements] = EMPTY;
    used = live;
    table = fresh;
    fresh = 0;
    live = 0;
    k = 0
  }
}

inline insert(node) {
  atomic { slot[table * SLOTS + used] = node; used++ }
}

// The first node of the table, unless it is `newest`.
inline retire_but(newest) {
  atomic {
    for (k : 0 .. SLOTS - 1) {
      if
      :: slot[table * SLOTS + k] < GONE && slot[table * SLOTS + k] != newest ->
         retirements++;
         retired_node[retirements] = slot[table * SLOTS + k];
         retired_table[retirements] = TABLES;
         slot[table * SLOTS + k] = GONE
      :: else
      fi
    }
    k = 0
  }
}

// settle(up_to) under the lock, up to `enough`. What is freed is so after the lock, before it returns.
inline settle(up_to) {
  do
  :: hold();
     dead_from = freed;
     do
     :: freed == retirements -> break
     :: freed < retirements ->
        if
        :: draining_up_to == freed ->
           atomic { draining_up_to = retirements; turned = false }
        :: else
        fi;
        if
        :: !turned ->
           if
           :: counters[1 - parity] != 0 -> break
           :: else
           fi;
           parity = 1 - parity;
           turned = true
        :: else
        fi;
        if
        :: counters[1 - parity] != 0 -> break
        :: else
        fi;
        freed = draining_up_to
     od;
     atomic { dead_up_to = freed; enough = (freed >= up_to); state_lock = false }
     atomic {  // Garbage dead
       do
       :: dead_from == dead_up_to -> break
       :: dead_from < dead_up_to ->
          dead_from++;
          if
          :: retired_node[dead_from] != EMPTY -> freed_node[retired_node[dead_from]] = true
          :: else -> freed_table[retired_table[dead_from]] = true
          fi
       od
     }
     if
     :: enough -> break
     :: else
     fi
  od
}

proctype Inserter() {
  byte fresh, live, k, dead_from, dead_up_to, times;
  bool enough;
  do
  :: times == INSERTS -> break
  :: times < INSERTS ->
     hold();
     if
     :: used == SLOTS -> renew()
     :: else
     fi;
     insert(times);
     retire_but(times);
     state_lock = false;
     settle(0);
     times++
  od;
  over++
}

proctype Eraser() {
  byte k, dead_from, dead_up_to, wanted;
  bool enough;
  hold();
  retire_but(EMPTY);
  wanted = retirements;
  state_lock = false;
  settle(wanted);
  assert(freed >= wanted);
  over++
}

init {
  byte t;
  REPLAY_BEGIN;
  atomic {
    for (t : 0 .. TABLES * SLOTS - 1) { slot[t] = EMPTY }
    t = 0;
    do
    :: t == THREADS -> break
    :: t < THREADS -> run Asker(t); t++
    od;
    t = 0;
    do
    :: t == READERS -> break
    :: t < READERS -> run Reader(); t++
    od;
    if
    :: ERASES -> run FlightEraser()
    :: else -> over++
    fi;
    if
    :: READERS > 0 -> run Inserter(); run Eraser()
    :: else -> over = over + 2
    fi
  }
  over == THREADS + READERS + 3;
  for (t : 0 .. KEYS - 1) { assert(making[t] == 0 && flight[t] == 0) }
  assert(counters[0] == 0 && counters[1] == 0);
  REPLAY_END
}
