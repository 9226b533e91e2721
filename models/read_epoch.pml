// read_epoch.pml: readers that take no lock, and writers that free what no reader looks at any more.
//
//   Models     src/base/read_epoch.h: enter, Section; src/base/read_epoch.cpp: passed. src/base/once_map.h:
//              probe, insert, evict, retire, renew, erase_if, settle.
//   Safety     No reader looks at a table or a node that is freed; erase_if() returns when what it dropped is
//              freed.
//   Liveness   Every call returns (invalid end states). No execution is infinite, but for an eraser that
//              waits for a reader inside (ends_fairly).
//   Fairness   Weak, for the eraser: a reader inside goes on.
//   Bound      READERS that probe PROBES times, a writer of INSERTS under a limit of one entry, the third of
//              which makes a table anew, and an eraser.
//   Left out   Hashes and probing. CLOCK's choice: with one entry left the older one goes. One stripe of
//              counters, where two readers meet; stripes are looked at alike. Flights: once_map.pml.
//
//   Run reclaim: safety READERS=2 INSERTS=2
//   Run reclaim_again: safety READERS=1 PROBES=2 INSERTS=3
//   Run reclaim_ends: ends_fairly READERS=1 INSERTS=3
//   Replay reclaim: base_sim_test READERS=2 PROBES=2 INSERTS=3
//   Long reclaim_more: safety READERS=2 INSERTS=3

#include "replay.inc"

#ifndef PROBES
#define PROBES 1
#endif
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
byte over;

proctype Reader(byte me) {
  byte at, node, times, i;
  bool mine;
  do
  :: times == PROBES -> break
  :: times < PROBES ->
     mine = parity;
     STEP(read_epoch_enter, me, mine, counters[mine]++);
     STEP(once_map_read_table, me, 0, at = table);
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
#ifdef REPLAY
     STEP(once_map_probe, me, 0, skip);  // for a key that is not there
#endif
     STEP(read_epoch_leave, me, 0, atomic {
       counters[mine]--; times++; at = 0; node = 0; mine = false; i = 0
     })
  od;
  over++
}

inline hold() { atomic { !state_lock -> state_lock = true } }

// Each is under the lock; readers see the last store of each.
inline renew() {
  STEP(once_map_renew, me, 0, atomic {
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
  })
}

inline insert(node) {
  STEP(once_map_insert, me, 0, atomic { slot[table * SLOTS + used] = node; used++ })
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
         STEP(once_map_remove, me, 0, slot[table * SLOTS + k] = GONE)
      :: else
      fi
    }
    k = 0
  }
}

// In a replay no reader enters the first stripe. It is looked at once in each turn.
inline look_at_other_stripe() {
#ifdef REPLAY
  if
  :: STEP(read_epoch_look, me, 1, skip)
  :: skip
  fi
#else
  skip
#endif
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
           look_at_other_stripe();
           if
           :: STEP(read_epoch_look, me, 2, counters[1 - parity] != 0) -> break
           :: STEP(read_epoch_look, me, 3, counters[1 - parity] == 0)
           fi;
           STEP(read_epoch_turn, me, 0, parity = 1 - parity);
           turned = true
        :: else
        fi;
        look_at_other_stripe();
        if
        :: STEP(read_epoch_look, me, 2, counters[1 - parity] != 0) -> break
        :: STEP(read_epoch_look, me, 3, counters[1 - parity] == 0)
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
  byte me = READERS;
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
  byte me = READERS + 1;
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
    for (t : 0 .. READERS - 1) { run Reader(t) }
    run Inserter();
    run Eraser()
  }
  over == READERS + 2;
  assert(counters[0] == 0 && counters[1] == 0);
  REPLAY_END
}
