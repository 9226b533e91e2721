// stream_pool.pml: leases of streams, by owner's words that are taken and given back without a lock.
//
//   Models     src/runtime/streams/stream_pool.cpp: lease, occupy, join, wait_for_place, take_undisturbed,
//              leave, put_back, tell_seekers, close. src/runtime/admission/owner_words.h: try_take,
//              give_back, park, unpark, take_parked. src/runtime/admission/parked.h: one answer per caller.
//   Safety     A place has one lessee, or with share as many as its count says. Its stream is made, and
//              discarded, by the one who has its word while nobody else can join. `fail` refuses nobody
//              while there are as many places as threads. A parked caller gets one answer. At the end every
//              word is free, no caller is parked, and nobody seeks.
//   Liveness   Every lease() returns, with a stream, at its deadline, or refused by close(): no thread
//              sleeps for ever (invalid end states), and no execution is infinite (ends).
//   Fairness   None is needed.
//   Bound      THREADS callers that lease ROUNDS times, PLACES places to lease. Streams fail (FAILS),
//              deadlines pass (LATE) and close() comes (CLOSES) at any time.
//   Left out   The default stream. Where a thread looks first is any place, not its last one. Making a
//              stream does not fail. The compare-and-swap loop of join_least_loaded() is one step.
//
//   Run wait: safety MODE=2 THREADS=3 PLACES=1 ROUNDS=1 LATE=1 FAILS=1
//   Run wait_closes: safety MODE=2 THREADS=2 PLACES=1 CLOSES=1
//   Run wait_places: safety MODE=2 THREADS=3 PLACES=2 ROUNDS=1
//   Run share: safety MODE=1 THREADS=3 PLACES=1 ROUNDS=1
//   Run share_places: safety MODE=1 THREADS=2 PLACES=2 ROUNDS=1 CLOSES=1 FAILS=1
//   Run share_ends: ends MODE=1 THREADS=2 PLACES=1 ROUNDS=1 CLOSES=1
//   Run fail: safety MODE=3 THREADS=2 PLACES=2 ROUNDS=3 FAILS=1
//   Replay wait: runtime_sim_test MODE=2 THREADS=3 PLACES=1 ROUNDS=2 LATE=1
//   Replay wait_closes: runtime_sim_test MODE=2 THREADS=3 PLACES=1 ROUNDS=1 CLOSES=1
//   Replay share_closes: runtime_sim_test MODE=1 THREADS=3 PLACES=2 ROUNDS=2 CLOSES=1
//   Long wait_more: safety MODE=2 THREADS=3 PLACES=1 LATE=1 CLOSES=1
//   Long share_more: safety MODE=1 THREADS=3 PLACES=2 ROUNDS=1 CLOSES=1 FAILS=1
//   Long fail_more: safety MODE=3 THREADS=3 PLACES=3 ROUNDS=1

#include "replay.inc"

#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef LATE
#define LATE 0
#endif
#ifndef CLOSES
#define CLOSES 0
#endif
#ifndef FAILS
#define FAILS 0
#endif
#define SHARE 1
#define WAIT 2
#define FAIL 3
#define FREE 0
#define HANDED 100
#define NONE 50
#define REFUSED 200

byte word[PLACES];     // OwnerWords::Word::owner: FREE, a thread's number + 1, HANDED
byte lessees[PLACES];  // Place::lessees
byte stream[PLACES];   // Place::stream: 0 none, 1 works, 2 has failed
bool parked;           // OwnerWords::parked_
byte seekers;
bool changed[THREADS];  // whether changes_ differs from what the thread saw
bool closed;
bool lock;  // of queue_
bool queue_closed;
chan waiting = [THREADS] of { byte };
byte answer[THREADS];  // Parked: 0 none yet, place + 1, REFUSED
byte users[PLACES];    // who works on the stream now; not in the code
byte over;

inline notify_seekers() {  // changes_.add_release(1), notify_all()
  d_step {
    for (t : 0 .. THREADS - 1) { changed[t] = true }
    t = 0
  }
}

inline tell_seekers() {
  STEP(pool_look_for_seekers, me, seekers != 0, tells = (seekers != 0));
  if
  :: tells -> STEP(pool_tell_changes, me, 0, notify_seekers())
  :: else
  fi
}

// By the holder of the lock. Answers are given after it: `owed` keeps them.
inline hand_over() {
  do
  :: empty(waiting) ->
     STEP(words_unpark, me, 0, parked = false);
     break
  :: nempty(waiting) ->
     at = 0;
     do  // take_parked(kHandedOver)
     :: at == PLACES -> break
     :: at < PLACES ->
        if
        :: word[at] != FREE -> at++
        :: else ->
           if
           :: STEP(words_take_parked, me, at + 1, atomic { word[at] == FREE -> word[at] = HANDED })
              break
           :: else -> at++  // reached in long runs only: by a fourth thread
           fi
        fi
     od;
     if
     :: at == PLACES -> break
     :: else ->
        d_step { waiting ? who; owed[who] = at + 1; who = 0 }
     fi
  od;
  at = 0
}

inline give_answers() {  // StreamPool::answer
  t = 0;
  do
  :: t == THREADS -> break
  :: t < THREADS && owed[t] == 0 -> t++
  :: t < THREADS && owed[t] != 0 ->
     atomic { assert(answer[t] == 0) }
     if
     :: owed[t] == REFUSED -> STEP(parked_refuse, me, 0, atomic { answer[t] = owed[t]; owed[t] = 0; t++ })
     :: else -> STEP(parked_grant, me, owed[t], atomic { answer[t] = owed[t]; owed[t] = 0; t++ })
     fi
  od;
  t = 0
}

inline hold() { atomic { !lock -> lock = true } }

inline let_go() { lock = false }

inline put_back() {
  STEP(words_give_back, me, place + 1, word[place] = FREE);
  STEP(words_look_for_parked, me, parked, tell = parked);
  tell_seekers();
  if
  :: tell ->
     hold();
     hand_over();
     let_go();
     give_answers()
  :: else
  fi
}

inline try_take() {
  place = NONE;
  if
  :: parked
  :: else ->
     if
     :: at = 0
     :: PLACES > 1 -> at = 1
     fi;
     tried = 0;
     do
     :: tried == PLACES -> break
     :: tried < PLACES ->
        if
        :: word[at] != FREE -> skip
        :: else ->
           if
           :: STEP(words_take, me, at + 1, atomic { word[at] == FREE -> word[at] = me + 1; place = at })
              break
           :: else -> skip
           fi
        fi;
        atomic { tried++; at = (at + 1) % PLACES }
     od
  fi;
  atomic { tried = 0; at = 0 }
}

// The first look finds who can be joined, in any order; then by compare-and-swap, never from 0.
inline join_least_loaded() {
  at = 0;
  do
  :: at == PLACES -> break
  :: at < PLACES ->
     if
     :: stream[at] != 0 && lessees[at] > 0 -> seen[at] = true
     :: else
     fi;
     at++
  od;
  at = 0;
  do
  :: at == PLACES -> break
  :: at < PLACES && !seen[at] -> at++
  :: at < PLACES && seen[at] ->
     if
     :: STEP(pool_join, me, at + 1, atomic { lessees[at] > 0 -> lessees[at]++; place = at })
        break
     :: else -> at++
     fi
  od;
  atomic {
    for (at : 0 .. PLACES - 1) { seen[at] = false }
    at = 0
  }
}

inline occupy() {
  atomic {
    assert(word[place] == me + 1 && lessees[place] == 0 && users[place] == 0);
    if
    :: stream[place] == 0 -> stream[place] = 1
    :: else
    fi
  }
  STEP(pool_occupy, me, place + 1, lessees[place] = 1);
  tell_seekers()
}

inline join() {
  do
  :: STEP(pool_seek, me, 0, seekers++);
     STEP(pool_see_changes, me, 0, changed[me] = false);  // seen = changes_.load_acquire()
     try_take();
     took = (place != NONE);
     if
     :: !took -> join_least_loaded()
     :: else
     fi;
     if
     :: place == NONE ->
        if
        :: closed
        :: else -> changed[me]  // changes_.wait(seen)
        fi
     :: else
     fi;
     STEP(pool_end_seek, me, 0, seekers--);
     if
     :: took ->
        occupy();
        break
     :: !took && place != NONE -> break
     :: else ->
        if
        :: closed -> break
        :: else
        fi
     fi
  od
}

inline wait_for_place() {
  hold();
  if
  :: queue_closed ->
     let_go();
     place = NONE
  :: else ->
     STEP(words_park, me, 0, parked = true);
     answer[me] = 0;
     STEP(pool_wait, me, 0, waiting ! me);
     hand_over();
     let_go();
     give_answers();
     withdrawn = false;
     if
     :: answer[me] != 0
     :: LATE ->  // the deadline has passed
        hold();
        if
        :: STEP(pool_withdraw, me, 1, atomic { waiting ?? [eval(me)] -> waiting ?? eval(me) })
           withdrawn = true;
           hand_over()
        :: STEP(pool_withdraw, me, 0, !(waiting ?? [eval(me)]))
        fi;
        let_go();
        give_answers()
     fi;
     if
     :: withdrawn ->
        assert(answer[me] == 0);
        place = NONE
     :: else ->
        answer[me] != 0;  // the answer is on its way
        if
        :: answer[me] == REFUSED -> place = NONE
        :: else ->
           d_step {
             place = answer[me] - 1;
             assert(word[place] == HANDED)
           }
           STEP(words_pass_to, me, place + 1, word[place] = me + 1);
           occupy()
        fi;
        answer[me] = 0
     fi
  fi
}

inline take_undisturbed() {
  hold();
  STEP(words_park, me, 0, parked = true);
  at = 0;
  do
  :: at == PLACES -> break
  :: at < PLACES ->
     if
     :: word[at] != FREE -> at++
     :: else ->
        if
        :: STEP(words_take_parked, me, at + 1, atomic { word[at] == FREE -> word[at] = me + 1; place = at })
           break
        :: else -> at++
        fi
     fi
  od;
  at = 0;
  STEP(words_unpark, me, 0, parked = false);
  let_go()
}

inline lease() {
  place = NONE;
  if
  :: closed
  :: else ->
     try_take();
     if
     :: place != NONE -> occupy()
     :: place == NONE && MODE == SHARE -> join()
     :: place == NONE && MODE == WAIT -> wait_for_place()
     :: place == NONE && MODE == FAIL ->
        take_undisturbed();
        assert(place != NONE || THREADS > PLACES);
        if
        :: place != NONE -> occupy()
        :: else
        fi
     fi
  fi
}

inline leave() {
  STEP(pool_leave, me, lessees[place] == 1, atomic {
    users[place]--;
    lessees[place]--;
    tell = (lessees[place] == 0)
  });
  if
  :: tell ->
     if
     :: stream[place] == 2 ->
        d_step {
          assert(lessees[place] == 0 && users[place] == 0);
          stream[place] = 0
        }
     :: else
     fi;
     put_back()
  :: else
  fi
}

proctype Caller(byte me) {
  byte place, at, tried, t, who, round;
  byte owed[THREADS];
  bool seen[PLACES];
  bool tell, tells, took, withdrawn;
  do
  :: round == ROUNDS -> break
  :: round < ROUNDS ->
     lease();
     if
     :: place == NONE
     :: else ->
        atomic {
          users[place]++;
          assert(word[place] != FREE && word[place] != HANDED && stream[place] != 0);
          assert(MODE == SHARE || users[place] == 1);
          assert(lessees[place] >= users[place])
        }
        if
        :: FAILS -> stream[place] = 2  // the work fails
        :: skip
        fi;
        leave()
     fi;
     atomic { round++; place = 0; tell = false; took = false; withdrawn = false; tells = false }
  od;
  over++
}

proctype Closer() {
  byte me = THREADS;
  byte t, who;
  byte owed[THREADS];
  STEP(pool_close, me, 0, closed = true);
  hold();
  STEP(pool_close_queue, me, 0, d_step {
    queue_closed = true;
    do
    :: nempty(waiting) -> waiting ? who; owed[who] = REFUSED
    :: empty(waiting) -> break
    od;
    who = 0
  });
  STEP(words_unpark, me, 0, parked = false);
  let_go();
  give_answers();
  STEP(pool_tell_changes, me, 0, notify_seekers());
  over++
}

init {
  byte t;
  REPLAY_BEGIN;
  atomic {
    for (t : 0 .. THREADS - 1) { run Caller(t) }
    if
    :: CLOSES -> run Closer()
    :: else -> over++
    fi
  }
  over == THREADS + 1;
  assert(!parked && seekers == 0 && !lock && empty(waiting));
  for (t : 0 .. PLACES - 1) { assert(word[t] == FREE && lessees[t] == 0) };
  REPLAY_END
}
