// allocator.pml: blocks that are used again once nothing touches them, and room that is found at the limit.
//
//   Models     src/runtime/memory/allocator.cpp: allocate, take_new, take_emptied, reserve, recycle,
//              try_wait_in_line, reap_pending, free_cached_down_to, arrived. src/device/buffer.cpp:
//              pending. src/device/timeline.cpp: ring_at, advance. src/runtime/runtime.cpp: reap.
//              record_stream is src/api/tensor.cpp: a mark with the last value that was submitted to the
//              stream.
//   Safety     A block that is given out is touched by no submission, is nobody else's, and exists. What is
//              reserved never passes the limit, and covers every block that exists. A request that what is
//              in use leaves room for is served (ROOM), unless a block came into the cache meanwhile: that
//              one may have been freed, and its room taken, between the emptying and the next try. At the
//              end no block waits, and nothing moves.
//   Liveness   Every allocate() returns, and a block that waits for a submission comes back to the cache
//              after it (invalid end states, assertions at the end). No execution is infinite (ends).
//   Fairness   None is needed.
//   Bound      USERS that allocate ROUNDS times, of two size classes by turns; STREAMS that work for them;
//              LIMIT blocks; an emptier (EMPTIES) that calls empty_cache() twice at any time.
//   Left out   Sizes: blocks of both classes are one unit. Watermarks below the limit, pressure callbacks,
//              host memory that gives out. Stripes: one list, from which a taker may get nothing (a busy
//              stripe is passed by). What waits is looked at in one moment.
//
//   Run reuse: safety USERS=2 STREAMS=1 LIMIT=1 ROUNDS=1
//   Run streams: safety USERS=1 STREAMS=2 LIMIT=1 ROUNDS=1
//   Run room: safety USERS=1 STREAMS=0 LIMIT=1 ROUNDS=3 EMPTIES=1 ROOM=1
//   Run room_of_two: safety USERS=2 STREAMS=0 LIMIT=2 ROUNDS=2 ROOM=1
//   Run room_of_two_emptied: safety USERS=2 STREAMS=0 LIMIT=2 ROUNDS=2 EMPTIES=1 ROOM=1
//   Run all_end: ends USERS=1 STREAMS=1 LIMIT=1 ROUNDS=1 EMPTIES=1
//   Replay reuse: runtime_sim_test USERS=2 STREAMS=1 LIMIT=1 ROUNDS=2 EMPTIES=1
//   Replay streams: runtime_sim_test USERS=1 STREAMS=2 LIMIT=1 ROUNDS=2
//   Replay room: runtime_sim_test USERS=2 STREAMS=0 LIMIT=2 ROUNDS=2 EMPTIES=1 ROOM=1
//   Long reuse_more: safety USERS=2 STREAMS=1 LIMIT=2 ROUNDS=1

#include "replay.inc"

#ifndef EMPTIES
#define EMPTIES 0
#endif
#ifndef ROOM
#define ROOM 0
#endif
#define BLOCKS (LIMIT + 1)
#define ALL (STREAMS + 1)
#define NONE 20
#define NOWHERE 0
#define CACHED 1
#define PENDING 2
#define GIVEN 3
#define MOVES 4

// A block: where it is, its class, its marks (Buffer::History) by stream, and the last value that touches it.
byte place[BLOCKS], class[BLOCKS];
byte marks[BLOCKS * ALL], touches[BLOCKS * ALL];
byte last[ALL], reached[ALL], rings_at[ALL];  // of each stream
byte bell;
byte reserved, moving, arrivals, pending_count;
bool disturbed[USERS];  // a block came into the cache since the user was first refused; not in the code
bool moved[USERS + 2];  // whether moving_ differs from what the thread saw
byte over;
bool lists, line;  // the locks of what is cached and of what waits: replays have several STEPs under one

inline arrived(count) {
  if
  :: count == 0
  :: else ->
     STEP(allocator_count_arrival, me, 0, arrivals++);
     STEP(allocator_arrive, me, 0, atomic {
       moving = moving - count;
       for (i : 0 .. USERS + 1) { moved[i] = true }  // and notify_all()
       i = 0
     })
  fi
}

// over(): look at one use after the other.
inline look_over(block) {
  is_over = true;
  s = 0;
  do
  :: s == STREAMS -> break
  :: s < STREAMS ->
     if
     :: marks[block * ALL + s] > reached[s] -> is_over = false
     :: else
     fi;
     s++
  od;
  s = 0
}

// Under pending_'s lock: one step. Marks of blocks that wait do not change, and values only grow.
inline reap_pending() {
  if
  :: STEP(allocator_look_for_waiting, me, 0, pending_count == 0)
  :: STEP(allocator_look_for_waiting, me, 1, pending_count != 0) ->
     atomic {
       !line -> line = true;
       count = 0;
       for (b : 0 .. BLOCKS - 1) {
         if
         :: place[b] == PENDING ->
            look_over(b);
            if
            :: is_over -> place[b] = MOVES; mine[b] = true; count++
            :: else
            fi
         :: else
         fi
       }
       b = 0;
       STEP(allocator_take_waiting, me, count, moving = moving + count);
       line = false
     }
     pending_count = pending_count - count;
     do  // keep() each
     :: b == BLOCKS -> break
     :: b < BLOCKS ->
        if
        :: mine[b] ->
           STEP(allocator_keep, me, 0, atomic {
             !lists -> assert(place[b] == MOVES);
             place[b] = CACHED;
             mine[b] = false;
             for (i : 0 .. USERS - 1) { disturbed[i] = true }
             i = 0
           })
        :: else
        fi;
        b++
     od;
     b = 0;
     arrived(count);
     count = 0
  fi
}

inline free_cached() {
  atomic {
    !lists -> lists = true;
    count = 0;
    for (b : 0 .. BLOCKS - 1) {
      if
      :: place[b] == CACHED ->
         STEP(allocator_take_out, me, 0, moving++);
         place[b] = MOVES;
         mine[b] = true;
         count++
      :: else
      fi
    }
    b = 0;
    lists = false
  }
  atomic {  // to the driver
    for (b : 0 .. BLOCKS - 1) {
      if
      :: mine[b] -> assert(place[b] == MOVES); place[b] = NOWHERE; mine[b] = false
      :: else
      fi
    }
    b = 0
  }
  if
  :: count == 0
  :: else -> STEP(allocator_give_back, me, 0, reserved = reserved - count)
  fi;
  arrived(count);
  count = 0
}

inline empty_cache() {
  reap_pending();
  free_cached()
}

inline take_cached() {
  if
  :: atomic {
       !lists -> lists = true;
       got = NONE;
       for (b : 0 .. BLOCKS - 1) {
         if
         :: got == NONE && place[b] == CACHED && class[b] == wanted -> got = b
         :: else
         fi
       }
       b = 0;
       if
       :: got != NONE -> STEP(allocator_take_cached, me, 0, place[got] = GIVEN)
       :: else
       fi;
       lists = false
     }
  :: got = NONE  // the stripe was busy
  fi
}

// reserve(), and the driver's allocation.
inline take_from_driver() {
  if
  :: STEP(allocator_reserve, me, 0, atomic { reserved < LIMIT -> reserved++ })
     atomic {
       for (b : 0 .. BLOCKS - 1) {
         if
         :: got == NONE && place[b] == NOWHERE -> got = b; place[b] = GIVEN; class[b] = wanted
         :: else
         fi
       }
       b = 0;
       assert(got != NONE)
     }
  :: reserved >= LIMIT
  fi
}

inline take_emptied() {
  do
  :: STEP(allocator_see_arrivals, me, 0, seen = arrivals);
     empty_cache();
     take_from_driver();
     if
     :: got != NONE -> break
     :: else
     fi;
     STEP(allocator_look_for_moving, me, moving != 0, atomic { moves = moving; moved[me] = false });
     if
     :: moves != 0 -> moved[me] || moving != moves  // moving_.wait()
     :: moves == 0 ->
        if
        :: STEP(allocator_look_for_arrivals, me, 1, arrivals != seen)
        :: STEP(allocator_look_for_arrivals, me, 0, arrivals == seen) -> break
        fi
     fi
  od
}

inline allocate() {
  take_cached();
  if
  :: got != NONE
  :: else ->
     reap_pending();
     take_cached();
     if
     :: got != NONE
     :: else ->
        disturbed[me] = false;
        if
        :: reserved == LIMIT -> free_cached()  // give_up_cache_for()
        :: else
        fi;
        take_from_driver();
        if
        :: got != NONE
        :: else -> take_emptied()
        fi
     fi
  fi
}

inline ring_at(s, value) {
  STEP(timeline_ring_at, me, value, atomic {
    if
    :: value > rings_at[s] -> rings_at[s] = value
    :: else
    fi
  });
  if
  :: STEP(timeline_look_ahead, me, 1, reached[s] < value)
  :: STEP(timeline_look_ahead, me, 0, reached[s] >= value) -> awaited = false
  fi
}

// Buffer::pending() leaves out uses that are over.
inline look_at_uses() {
  is_over = true;
  s = 0;
  do
  :: s == STREAMS -> break
  :: s < STREAMS ->
     if
     :: uses[s] > reached[s] -> is_over = false
     :: else -> uses[s] = 0
     fi;
     s++
  od;
  s = 0
}

// Of a buffer that nobody holds any more.
inline recycle() {
  look_at_uses();
  if
  :: is_over ->
     STEP(allocator_keep, me, 1, atomic {
       !lists -> place[got] = CACHED;
       for (b : 0 .. USERS - 1) { disturbed[b] = true }
       b = 0
     })
  :: else ->
     STEP(allocator_count_waiting, me, 0, pending_count++);
     STEP(allocator_wait_in_line, me, 0, atomic {
       !line -> assert(place[got] == GIVEN);
       place[got] = PENDING
     });
     awaited = true;
     t = 0;
     do
     :: t == STREAMS -> break
     :: t < STREAMS ->
        if
        :: uses[t] != 0 -> ring_at(t, uses[t])
        :: else
        fi;
        t++
     od;
     t = 0;
     if
     :: !awaited -> reap_pending()
     :: else
     fi
  fi
}

proctype User(byte me) {
  byte got, wanted, b, s, t, i, count, moves, seen, round;
  byte uses[ALL];
  bool mine[BLOCKS], is_over, awaited;
  wanted = me % 2;
  do
  :: round == ROUNDS -> break
  :: round < ROUNDS ->
     allocate();
     STEP(test_allocate, me, got != NONE, assert(got != NONE || !ROOM || disturbed[me]));
     if
     :: got == NONE
     :: else ->
        atomic {
          assert(place[got] == GIVEN && class[got] == wanted);
          for (s : 0 .. ALL - 1) {
            assert(touches[got * ALL + s] <= reached[s]);
            marks[got * ALL + s] = 0
          }
          s = 0
        }
        do  // a kernel of the user's own on some streams, each recorded
        :: t == STREAMS -> break
        :: t < STREAMS -> t++
        :: t < STREAMS ->
           STEP(test_submit, me, t, atomic { last[t]++; touches[got * ALL + t] = last[t] });
           atomic { marks[got * ALL + t] = last[t]; uses[t] = last[t] }
           t++
        od;
        t = 0;
        recycle();
        atomic {
          for (s : 0 .. ALL - 1) { uses[s] = 0 }
          s = 0
        }
     fi;
     atomic { round++; wanted = 1 - wanted; got = NONE }
  od;
  over++
}

proctype Emptier() {
  byte me = USERS;
  byte b, s, i, count, times;
  bool mine[BLOCKS], is_over;
  do
  :: times == 2 -> break
  :: times < 2 ->
     empty_cache();
     times++
  od;
  over++
}

proctype Device(byte me) {
  byte before;
  do
  :: reached[me] < last[me] ->
     before = reached[me];
     STEP(timeline_reach, USERS + 2 + me, reached[me] + 1, reached[me]++);
     if
     :: STEP(timeline_look_for_bells, USERS + 2 + me, 1, rings_at[me] > before) ->
        STEP(bell_ring, USERS + 2 + me, 0, bell++)
     :: STEP(timeline_look_for_bells, USERS + 2 + me, 0, rings_at[me] <= before)
     fi
  :: reached[me] == last[me] && over == USERS + 1 -> break
  od
}

proctype Reaper() {
  byte me = USERS + 1;
  byte seen, b, s, i, count;
  bool mine[BLOCKS], is_over;
  do
  :: seen = bell;
     reap_pending();
end_wait:
     bell != seen
  od
}

init {
  byte t;
  REPLAY_BEGIN;
  atomic {
    for (t : 0 .. USERS - 1) { run User(t) }
    do
    :: t >= USERS + STREAMS -> break
    :: t < USERS + STREAMS -> run Device(t - USERS); t++
    od;
    if
    :: EMPTIES -> run Emptier()
    :: else -> over++
    fi;
    run Reaper()
  }
  over == USERS + 1;
  timeout;
  REPLAY_END;
  assert(moving == 0 && pending_count == 0);
  for (t : 0 .. BLOCKS - 1) {
    assert(place[t] == CACHED || place[t] == NOWHERE)
  }
}
