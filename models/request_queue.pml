// request_queue.pml: a request from its admission to its one answer, whatever happens to queue and workers.
//
//   Models     src/batch/requests/request_queue.cpp: submit, admit, await_room, grant_room, cancel,
//              await_due, try_take, tell_taker, start, expire, ran, finish.
//              src/api/batch_queue.cpp: work, run. src/batch/requests/request_queue_care.cpp: care, hang,
//              came_back, lost_worker, drain, close, tell_all, owe, answered.
//   Safety     An admitted request is answered once; one that is refused is in no batch. drain() returns
//              when all that was admitted is answered, whoever answers it. No more than CAPACITY requests
//              wait; room that was granted is used or given on. A worker whose batch was given up as hung
//              does not answer it.
//   Liveness   Every request is answered while a worker is there, though close() never comes: a free worker
//              does not sleep beside a request, the keeper wakes for the first deadline, and a submitter
//              that waits for room gets it (invalid end states). No execution is infinite (ends).
//   Fairness   None is needed.
//   Bound      REQUESTS, each with a submitter and, with KEEPER, a deadline in the order of their numbers;
//              WORKERS that take two at most; room is waited for until a deadline (LATE). A worker hangs
//              (HANGS), is busy (BUSY) or does not start (DIES), request 0 is cancelled (CANCELS), drain()
//              (DRAINS) and close() (CLOSES) come, all at will. Takers wake for no reason (SPURIOUS). Without
//              CLOSES the queue is closed when all is answered.
//   Left out   The policy: what waits is due at once, and a batch is as large as it likes. Returning callers,
//              lingering batches, replaced workers, seekers without a thread, a drain() by who owes answers.
//              Each critical section of state_ is one step, and the answers that a thread gives together are.
//   Replayed   By request_queue_sim_test.cpp, whose threads answer as those of BatchQueue do.
//
//   Run queue: safety REQUESTS=2 WORKERS=2 CAPACITY=2
//   Run room: safety REQUESTS=3 WORKERS=1 CAPACITY=1 LATE=1 CANCELS=1
//   Run deadlines: safety REQUESTS=2 WORKERS=1 CAPACITY=2 KEEPER=1
//   Run keeper: safety REQUESTS=2 WORKERS=1 CAPACITY=2 KEEPER=1 BUSY=1
//   Run drain: safety REQUESTS=2 WORKERS=2 CAPACITY=1 DRAINS=1
//   Run drain_late: safety REQUESTS=1 WORKERS=1 CAPACITY=1 KEEPER=1 DRAINS=1
//   Run drain_cancel: safety REQUESTS=2 WORKERS=1 CAPACITY=1 CANCELS=1 DRAINS=1
//   Run drain_hang: safety REQUESTS=1 WORKERS=1 CAPACITY=1 KEEPER=1 HANGS=1 DRAINS=1
//   Run drain_dies: safety REQUESTS=2 WORKERS=2 CAPACITY=1 DIES=1 DRAINS=1
//   Run close: safety REQUESTS=2 WORKERS=1 CAPACITY=1 CLOSES=1 DRAINS=1
//   Run hang: safety REQUESTS=1 WORKERS=1 CAPACITY=1 KEEPER=1 HANGS=1
//   Run dies: safety REQUESTS=2 WORKERS=2 CAPACITY=1 DIES=1
//   Run wakes: safety REQUESTS=2 WORKERS=2 CAPACITY=1 SPURIOUS=1
//   Run all_end: ends REQUESTS=2 WORKERS=1 CAPACITY=1 CLOSES=1
//   Replay room: batch_sim_test REQUESTS=3 WORKERS=2 CAPACITY=1 LATE=1 CANCELS=1 DIES=1 DRAINS=1 SPURIOUS=1
//   Replay close: batch_sim_test REQUESTS=3 WORKERS=2 CAPACITY=1 CLOSES=1 DRAINS=1 SPURIOUS=1
//   Replay deadlines: batch_sim_test REQUESTS=3 WORKERS=1 CAPACITY=2 KEEPER=1 DRAINS=1 SPURIOUS=1
//   Replay hang: batch_sim_test REQUESTS=3 WORKERS=1 CAPACITY=1 KEEPER=1 HANGS=1 DRAINS=1 SPURIOUS=1
//   Long queue_more: safety REQUESTS=3 WORKERS=2 CAPACITY=2
//   Long close_more: safety REQUESTS=3 WORKERS=1 CAPACITY=1 CLOSES=1 DRAINS=1
//   Long hang_more: safety REQUESTS=2 WORKERS=1 CAPACITY=1 KEEPER=1 HANGS=1

#include "replay.inc"

#ifndef LATE
#define LATE 0
#endif
#ifndef CANCELS
#define CANCELS 0
#endif
#ifndef KEEPER
#define KEEPER 0
#endif
#ifndef DRAINS
#define DRAINS 0
#endif
#ifndef CLOSES
#define CLOSES 0
#endif
#ifndef HANGS
#define HANGS 0
#endif
#ifndef DIES
#define DIES 0
#endif
#ifndef BUSY
#define BUSY 0
#endif
#ifndef SPURIOUS
#define SPURIOUS 0
#endif
#define MOST 2
#define NEVER 30
#define HANG_TIME 29  // of a batch that runs, before or after any deadline
#define GRANTED 1
#define REFUSED 2
#define WAITS 1
#define IN_BATCH 2
#define OUT 3
#define TURNED_AWAY 4
// Who does a step: submitters come first.
#define WORKER(w) (REQUESTS + (w))
#define CLOSER (REQUESTS + WORKERS)
#define THE_KEEPER (REQUESTS + WORKERS + 1)
#define CANCELLER (REQUESTS + WORKERS + 2)
#define DRAINER (REQUESTS + WORKERS + 3)

// State, under its lock.
chan waiting = [REQUESTS] of { byte };
chan seekers = [REQUESTS] of { byte };
byte reserved, runs, asleep, told, serving = WORKERS;
byte care_next;          // a deadline's number + 1, HANG_TIME or NEVER; 0: the keeper has not looked yet
bool changed[WORKERS];   // turn differs from what the taker saw
bool running[WORKERS];   // in a batch that nobody answers yet
bool hung[WORKERS], reported[WORKERS];
byte batch[WORKERS * MOST], size[WORKERS];  // 0: it is in no batch
bool answering[WORKERS + 3];  // it has an Owed: of each worker, and of the next three
#define OF_KEEPER WORKERS
#define OF_CANCELLER (WORKERS + 1)
#define OF_CLOSER (WORKERS + 2)
bool draining, closed, refusal, drainer_waits;

bool sleeping[WORKERS];  // in the Condition
byte parked_answer[REQUESTS + 1];  // Parked, of each submitter and of the drainer: 0: none yet
bool rung, returned;     // submit() of request 0 has
byte now;                // deadlines below it have passed
byte where[REQUESTS], answered[REQUESTS];  // not in the code, as are the next
byte settled, over;

#define ROOM_BESIDE(kept) (len(waiting) + reserved - kept + 1 <= CAPACITY)
#define ROOM_FOR_ME ((was_granted || len(seekers) == 0) && ROOM_BESIDE(was_granted))
#define OPEN (!closed && !draining && !refusal)
#define WORKER_ANSWERS (answering[0] || answering[WORKERS - 1])
#define OTHER_ANSWERS (answering[OF_KEEPER] || answering[OF_CANCELLER] || answering[OF_CLOSER])
#define IDLE (len(waiting) == 0 && runs == 0 && !WORKER_ANSWERS && !OTHER_ANSWERS)
#define IS_LATE(r) (KEEPER && now > r && waiting ?? [r])
#define LATE_ONES (IS_LATE(0) + IS_LATE(1) + IS_LATE(2))
#define CAN_TAKE (!closed && LATE_ONES == 0 && len(waiting) > 0)

// Under the lock: an answer that is given after it.
inline owe(whom, what) {
  owed[owes] = whom * 4 + what;
  owes++
}

inline pass_answer() {
  assert(parked_answer[owed[i] / 4] == 0);
  parked_answer[owed[i] / 4] = owed[i] % 4;
  owed[i] = 0;
  i++
}

inline give_answers(id) {
  if
  :: owes == 0
  :: else ->
     atomic {
       do
       :: i == owes -> break
       :: i < owes && owed[i] % 4 == GRANTED -> STEP(parked_grant, id, 0, pass_answer())
       :: i < owes && owed[i] % 4 == REFUSED -> STEP(parked_refuse, id, 0, pass_answer())
       od;
       i = 0;
       owes = 0
     }
  fi
}

inline grant_room() {
  do
  :: len(seekers) > 0 && ROOM_BESIDE(0) ->
     seekers ? who;
     reserved++;
     owe(who, GRANTED)
  :: else -> break
  od;
  who = 0
}

inline now_idle() {
  if
  :: drainer_waits && IDLE -> drainer_waits = false; owe(REQUESTS, GRANTED)
  :: else
  fi
}

inline new_turn() {
  for (i : 0 .. WORKERS - 1) { changed[i] = true }
  i = 0
}

#define TELLS (runs < WORKERS && asleep > told)
inline tell_taker(at_once) {
  if
  :: at_once && TELLS -> told++; new_turn(); tell = true
  :: else -> tell = false
  fi
}

inline notify_one() {
  if
  :: !tell
  :: tell ->
     if
     :: atomic { sleeping[0] -> sleeping[0] = false }
     :: atomic { sleeping[WORKERS - 1] -> sleeping[WORKERS - 1] = false }
     :: else
     fi
  fi;
  tell = false
}

inline tell_all() {
  new_turn();
  told = asleep
}

inline notify_all() {
  atomic {
    for (i : 0 .. WORKERS - 1) { sleeping[i] = false }
    i = 0
  }
}

inline ring(id) { STEP(queue_ring, id, 0, rung = true) }

inline answer(request) {
  assert(answered[request] == 0 && where[request] != WAITS);
  answered[request]++;
  settled++
}

inline refuse_seekers() {
  do
  :: len(seekers) > 0 -> seekers ? who; owe(who, REFUSED)
  :: else -> break
  od;
  who = 0
}

// empty(): what waits becomes the caller's, and who waits for room is refused.
inline empty_queue(index) {
  answering[index] = (answering[index] || len(waiting) > 0);
  do
  :: len(waiting) > 0 -> waiting ? who; mine[who] = true; where[who] = OUT
  :: else -> break
  od;
  refuse_seekers()
}

// What its Owed stands for, and then its end.
inline answer_mine(index, id) {
  if
  :: answering[index] ->
     atomic {
       do
       :: i == REQUESTS -> break
       :: i < REQUESTS && mine[i] -> STEP(request_answer, id, i, answer(i)); mine[i] = false; i++
       :: i < REQUESTS && !mine[i] -> i++
       od;
       i = 0
     }
     atomic { STEP(queue_answered, id, 0, answering[index] = false); now_idle() }
     give_answers(id)
  :: else
  fi
}

proctype Submitter(byte me) {
  byte who, i, owes;
  byte owed[REQUESTS + 1];
  bool was_granted, parks, tell, rings, refused;
  do
  :: atomic {
       if
       :: STEP(queue_refuse, me, 0, !OPEN -> refused = true)
       :: STEP(queue_admit, me, TELLS, OPEN && ROOM_FOR_ME -> waiting ! me);
          parks = false;
          where[me] = WAITS;
          assert(len(waiting) <= CAPACITY);
          tell_taker(true);
          if
          :: KEEPER && me + 1 < care_next -> rings = true
          :: !(KEEPER && me + 1 < care_next) || care_next == HANG_TIME
          fi
       :: STEP(queue_reject, me, 0, LATE && OPEN && !ROOM_FOR_ME && !was_granted -> refused = true)
       :: STEP(queue_seek_room, me, 0, OPEN && !ROOM_FOR_ME -> seekers ! me);
          parks = true
       fi;
       reserved = reserved - was_granted
     }
     if
     :: refused || !parks -> break
     :: else ->
        if
        :: parked_answer[me] != 0
        :: LATE ->
           atomic {
             if
             :: STEP(queue_withdraw, me, 1, seekers ?? [eval(me)] -> seekers ?? eval(me));
                refused = true;
                grant_room()
             :: STEP(queue_withdraw, me, 0, !(seekers ?? [eval(me)]))
             fi
           }
           give_answers(me)
        fi;
        if
        :: refused -> break
        :: atomic { parked_answer[me] == REFUSED -> parked_answer[me] = 0 }
           refused = true;
           break
        :: atomic { parked_answer[me] == GRANTED -> parked_answer[me] = 0 }
           was_granted = true
        fi
     fi
  od;
  if
  :: refused -> atomic { assert(where[me] == 0); where[me] = TURNED_AWAY; settled++ }
  :: else ->
     notify_one();
     if
     :: rings -> ring(me)
     :: else
     fi
  fi;
  atomic { returned = (returned || me == 0); over++ }
}

inline take_late() {  // an Expire: what waits and is late
  count = len(waiting);
  do
  :: count == 0 -> break
  :: count > 0 ->
     count--;
     waiting ? who;
     if
     :: KEEPER && who < now -> mine[who] = true; where[who] = OUT
     :: else -> waiting ! who
     fi
  od;
  who = 0
}

proctype Worker(byte me) {
  byte who, i, count, took, owes;
  byte owed[REQUESTS + 1];
  bool mine[REQUESTS], tell, late, due, rings;
  if
  :: DIES ->  // prepare() throws: lost_worker()
     atomic {
       STEP(queue_lose_worker, WORKER(me), serving == 1 && !closed, serving--);
       if
       :: serving > 0 || closed
       :: else ->
          refusal = true;
          empty_queue(me)
       fi
     }
     give_answers(WORKER(me));
     answer_mine(me, WORKER(me));
     goto ended
  :: BUSY ->  // with a batch of others, until the end
     closed;
     goto ended
  :: !BUSY
  fi;
  do
  :: // await_due()
     do
     :: closed || len(waiting) > 0 -> break
     :: atomic {
          STEP(queue_sleep, WORKER(me), 0, !closed && len(waiting) == 0 -> asleep++);
          changed[me] = false;
          sleeping[me] = true
        }
        do
        :: atomic {
             STEP(queue_wake, WORKER(me), 0, !sleeping[me] && changed[me] -> asleep--);
             told = (told > 0 -> told - 1 : 0)
           }
           break
        :: atomic { !sleeping[me] && !changed[me] -> sleeping[me] = true }
        :: atomic { SPURIOUS && sleeping[me] && changed[me] -> sleeping[me] = false }
        od
     od;
     // try_take()
     atomic {
       if
       :: closed -> goto ended
       :: !closed && len(waiting) == 0
       :: STEP(queue_expire, WORKER(me), LATE_ONES, !closed && LATE_ONES > 0 -> late = true);
          take_late();
          answering[me] = true
       :: STEP(queue_take, WORKER(me), 1, CAN_TAKE -> took = 1)
       :: STEP(queue_take, WORKER(me), 2, CAN_TAKE && len(waiting) > 1 -> took = 2)
       fi;
       if
       :: took > 0 ->
          do
          :: count == took -> break
          :: count < took ->
             waiting ? who;
             where[who] = IN_BATCH;
             batch[me * MOST + count] = who;
             count++
          od;
          count = 0;
          who = 0;
          size[me] = took;
          running[me] = true;
          reported[me] = false;
          runs++;
          assert(runs <= WORKERS);
          if
          :: HANGS && care_next == NEVER -> rings = true
          :: HANGS && 0 < care_next && care_next < HANG_TIME -> rings = true  // if this may hang before that
          :: !HANGS || care_next != NEVER
          fi
       :: else
       fi;
       if
       :: late || took > 0 ->
          tell_taker(len(waiting) > 0);
          grant_room()
       :: else
       fi
     }
     notify_one();
     if
     :: rings ->
        rings = false;
        ring(WORKER(me))
     :: else
     fi;
     give_answers(WORKER(me));
     if
     :: late ->
        late = false;
        answer_mine(me, WORKER(me))
     :: !late && took == 0
     :: !late && took > 0 ->
        atomic {  // ran()
          STEP(queue_ran, WORKER(me), !hung[me], due = !hung[me]);
          running[me] = false;
          answering[me] = due;
          do
          :: !due || count == took -> break
          :: due && count < took -> mine[batch[me * MOST + count]] = true; count++
          od;
          count = 0;
          took = 0
        }
        answer_mine(me, WORKER(me));
        atomic {  // finish(), and came_back()
          if
          :: STEP(queue_finish, WORKER(me), len(waiting) > 0 && asleep > told, due -> runs--);
             size[me] = 0;
             tell_taker(len(waiting) > 0);
             now_idle()
          :: STEP(queue_hung_comes_back, WORKER(me), 0, !due && hung[me] -> hung[me] = false);
             serving++;
             refusal = false
          fi;
          due = false
        }
        notify_one();
        give_answers(WORKER(me))
     fi
  od;
ended:
  over++
}

proctype Keeper() {
  byte who, i, count, w, owes;
  byte owed[REQUESTS + 1];
  bool mine[REQUESTS], late, hangs, ends;
  do
  :: do
     :: STEP(queue_see_bell, THE_KEEPER, 0, rung = false);  // `seen` is read
        atomic {
          STEP(queue_care, THE_KEEPER, LATE_ONES, late = (LATE_ONES > 0));
          ends = closed;
          take_late();
          care_next = NEVER;
          count = len(waiting);
          do
          :: count == 0 -> break
          :: count > 0 ->
             count--;
             waiting ? who;
             waiting ! who;
             care_next = (who + 1 < care_next -> who + 1 : care_next)
          od;
          who = 0; w = 0;
          do
          :: w == WORKERS -> break
          :: w < WORKERS && (!HANGS || size[w] == 0 || reported[w]) -> w++
          :: w < WORKERS && HANGS && size[w] > 0 && !reported[w] ->
             if
             :: reported[w] = true;
                break
             :: care_next = HANG_TIME;
                w++
             :: care_next < NEVER -> w++
             fi
          od;
          answering[OF_KEEPER] = late;
          grant_room()
        }
        give_answers(THE_KEEPER);
        if
        :: ends || late || w < WORKERS -> break
        :: else -> rung || care_next <= now || care_next == HANG_TIME
        fi
     od;
     answer_mine(OF_KEEPER, THE_KEEPER);
     if
     :: w < WORKERS ->  // hang()
        atomic {
          STEP(queue_hang, THE_KEEPER, running[w], hangs = running[w]);
          if
          :: hangs ->
             running[w] = false;
             hung[w] = true;
             runs--;
             serving--;
             do
             :: count == size[w] -> break
             :: count < size[w] -> mine[batch[w * MOST + count]] = true; count++
             od;
             count = 0;
             size[w] = 0;
             answering[OF_KEEPER] = true;
             if
             :: serving == 0 -> refusal = true; empty_queue(OF_KEEPER)
             :: else
             fi;
             tell_all()
          :: else
          fi
        }
        if
        :: hangs ->
           notify_all();
           give_answers(THE_KEEPER);
           answer_mine(OF_KEEPER, THE_KEEPER)
        :: else
        fi
     :: else
     fi;
     if
     :: ends -> break
     :: else
     fi
  od;
  over++
}

proctype Canceller() {
  byte who, i, owes;
  byte owed[REQUESTS + 1];
  bool mine[REQUESTS];
  returned;  // its id
  atomic {
    if
    :: STEP(queue_cancel, CANCELLER, 1, waiting ?? [0] -> waiting ?? 0);
       where[0] = OUT;
       mine[0] = true;
       answering[OF_CANCELLER] = true;
       grant_room()
    :: STEP(queue_cancel, CANCELLER, 0, !(waiting ?? [0]))
    fi
  }
  give_answers(CANCELLER);
  answer_mine(OF_CANCELLER, CANCELLER);
  over++
}

proctype Drainer() {
  byte who, i, owes;
  byte owed[REQUESTS + 1];
  atomic {
    STEP(queue_drain, DRAINER, IDLE, draining = true);
    refuse_seekers();
    tell_all();
    drainer_waits = true;
    now_idle()
  }
  notify_all();
  give_answers(DRAINER);
  atomic {
    parked_answer[REQUESTS] != 0 ->
    for (i : 0 .. REQUESTS - 1) {
      assert(answered[i] == 1 || where[i] == 0 || where[i] == TURNED_AWAY)
    }
  }
  over++
}

proctype Closer() {
  byte who, i, owes;
  byte owed[REQUESTS + 1];
  bool mine[REQUESTS];
  if
  :: CLOSES
  :: settled == REQUESTS
  fi;
  atomic {
    STEP(queue_close, CLOSER, len(waiting), closed = true);
    empty_queue(OF_CLOSER);
    tell_all()
  }
  notify_all();
  ring(CLOSER);
  give_answers(CLOSER);
  answer_mine(OF_CLOSER, CLOSER);
  over++
}

proctype Time() {
  do
  :: now == REQUESTS -> break
  :: now < REQUESTS -> now++
  od
}

init {
  byte t;
  REPLAY_BEGIN;
  atomic {
    for (t : 0 .. REQUESTS - 1) { run Submitter(t) }
    for (t : 0 .. WORKERS - 1) { run Worker(t) }
    run Closer();
    if
    :: KEEPER -> run Keeper(); run Time()
    :: else -> over++
    fi;
    if
    :: CANCELS -> run Canceller()
    :: else -> over++
    fi;
    if
    :: DRAINS -> run Drainer()
    :: else -> over++
    fi
  }
  over == REQUESTS + WORKERS + 4;
  assert(len(waiting) == 0 && len(seekers) == 0 && reserved == 0 && runs == 0);
  for (t : 0 .. REQUESTS - 1) { assert(answered[t] == (where[t] == TURNED_AWAY -> 0 : 1)) };
  REPLAY_END
}
