// request_queue.pml: a request from its admission to its one answer, whatever happens to queue and workers.
//
//   Models     src/batch/requests/request_queue.cpp: submit, admit, await_room, grant_room, cancel,
//              await_due, try_take, tell_taker, start, expire, come_back, ran, finish.
//              src/api/batch_queue.cpp: work, run. src/batch/requests/request_queue_care.cpp: care, hang,
//              came_back, lost_worker, drain, close, tell_all.
//   Safety     An admitted request is answered once; one that is refused is in no batch. drain() returns
//              when all that was admitted is answered. No more than CAPACITY requests wait; room that was
//              granted is used or given on. A worker whose batch was given up as hung does not answer it.
//   Liveness   Every request is answered while a worker is there, though close() never comes: a free worker
//              does not sleep beside a request, the keeper wakes for the first deadline, and a submitter
//              that waits for room gets it (invalid end states). No execution is infinite (ends).
//   Fairness   None is needed.
//   Bound      REQUESTS, each with a submitter and, with KEEPER, a deadline in the order of their numbers;
//              WORKERS that take two at most; room is waited for until a deadline (LATE). A worker hangs
//              (HANGS), is busy (BUSY) or does not start (DIES), request 0 is cancelled (CANCELS), drain()
//              (DRAINS) and close() (CLOSES) come, all at will. Without CLOSES the queue is closed when all
//              is answered.
//   Left out   The policy: what waits is due at once. Returning callers, lingering batches, replaced
//              workers, seekers without a thread. Each critical section of state_ is one step, and the
//              answers that a thread gives together are.
//
//   Run queue: safety REQUESTS=2 WORKERS=2 CAPACITY=2
//   Run room: safety REQUESTS=3 WORKERS=1 CAPACITY=1 LATE=1 CANCELS=1
//   Run deadlines: safety REQUESTS=2 WORKERS=1 CAPACITY=2 KEEPER=1
//   Run keeper: safety REQUESTS=2 WORKERS=1 CAPACITY=2 KEEPER=1 BUSY=1
//   Run drain: safety REQUESTS=2 WORKERS=2 CAPACITY=1 DRAINS=1
//   Run drain_late: safety REQUESTS=1 WORKERS=1 CAPACITY=1 KEEPER=1 DRAINS=1
//   Run close: safety REQUESTS=2 WORKERS=1 CAPACITY=1 CLOSES=1 DRAINS=1
//   Run hang: safety REQUESTS=1 WORKERS=1 CAPACITY=1 KEEPER=1 HANGS=1
//   Run dies: safety REQUESTS=2 WORKERS=2 CAPACITY=1 DIES=1
//   Run all_end: ends REQUESTS=2 WORKERS=1 CAPACITY=1 CLOSES=1
//   Long queue_more: safety REQUESTS=3 WORKERS=2 CAPACITY=2
//   Long close_more: safety REQUESTS=3 WORKERS=1 CAPACITY=1 CLOSES=1 DRAINS=1
//   Long hang_more: safety REQUESTS=2 WORKERS=1 CAPACITY=1 KEEPER=1 HANGS=1

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
#define MOST 2
#define NEVER 30
#define GRANTED 1
#define REFUSED 2
#define WAITS 1
#define IN_BATCH 2
#define OUT 3
#define TURNED_AWAY 4

// State, under its lock.
chan waiting = [REQUESTS] of { byte };
chan seekers = [REQUESTS] of { byte };
byte reserved, runs, asleep, told, serving = WORKERS;
byte care_next = NEVER;
bool changed[WORKERS];   // turn differs from what the taker saw
bool running[WORKERS], given_up[WORKERS], hung[WORKERS];
byte batch[WORKERS * MOST], size[WORKERS];
bool answering[WORKERS + 1];  // of each worker, and of the keeper
bool draining, closed, refusal, drainer_waits;

bool sleeping[WORKERS];  // in the Condition
byte room_answer[REQUESTS];
bool drained, rung;
byte now;                // deadlines below it have passed
byte where[REQUESTS], answered[REQUESTS];  // not in the code, as are the next
byte settled, over;

#define ROOM_LEFT (len(waiting) + reserved + 1 <= CAPACITY)
#define ANSWERING (answering[0] || answering[WORKERS - 1] || answering[WORKERS])
#define IDLE (len(waiting) == 0 && runs == 0 && (closed || !ANSWERING))

inline grant_room() {
  do
  :: len(seekers) > 0 && ROOM_LEFT ->
     seekers ? who;
     reserved++;
     assert(room_answer[who] == 0);
     room_answer[who] = GRANTED
  :: else -> break
  od;
  who = 0
}

inline now_idle() {
  if
  :: drainer_waits && IDLE -> drainer_waits = false; drained = true
  :: else
  fi
}

inline new_turn() {
  for (i : 0 .. WORKERS - 1) { changed[i] = true }
  i = 0
}

inline tell_taker() {
  if
  :: runs < WORKERS && asleep > told -> told++; new_turn(); tell = true
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

inline answer(request) {
  assert(answered[request] == 0 && where[request] != WAITS);
  answered[request]++;
  settled++
}

// empty(): what waits becomes the caller's, and who waits for room is refused.
inline empty_queue() {
  do
  :: len(waiting) > 0 -> waiting ? who; mine[who] = true; where[who] = OUT
  :: len(seekers) > 0 -> seekers ? who; assert(room_answer[who] == 0); room_answer[who] = REFUSED
  :: else -> break
  od;
  who = 0
}

inline answer_mine() {
  atomic {
    do
    :: i == REQUESTS -> break
    :: i < REQUESTS && mine[i] -> answer(i); mine[i] = false; i++
    :: i < REQUESTS && !mine[i] -> i++
    od;
    i = 0
  }
}

proctype Submitter(byte me) {
  byte who, i;
  bool was_granted, parks, tell, rings, refused;
  do
  :: atomic {
       if
       :: was_granted -> reserved--
       :: else
       fi;
       parks = false;
       if
       :: closed || draining || refusal -> refused = true
       :: else ->
          if
          :: (was_granted || len(seekers) == 0) && ROOM_LEFT ->
             waiting ! me;
             where[me] = WAITS;
             rings = (KEEPER && me < care_next);
             assert(len(waiting) <= CAPACITY);
             tell_taker()
          :: else ->
             parks = true;
             seekers ! me
          fi
       fi
     }
     if
     :: !parks -> break
     :: else ->
        if
        :: room_answer[me] != 0
        :: LATE ->
           atomic {
             if
             :: room_answer[me] == 0 -> seekers ?? eval(me); refused = true; grant_room()
             :: else
             fi
           }
        fi;
        if
        :: refused -> break
        :: else ->
           atomic {
             room_answer[me] != 0 -> refused = (room_answer[me] == REFUSED);
             was_granted = true;
             room_answer[me] = 0
           }
           if
           :: refused -> break
           :: else
           fi
        fi
     fi
  od;
  if
  :: refused -> atomic { assert(where[me] == 0); where[me] = TURNED_AWAY; settled++ }
  :: else ->
     notify_one();
     if
     :: rings -> rung = true
     :: else
     fi
  fi;
  over++
}

inline come_back(index) {
  atomic { answering[index] = false; now_idle() }
}

inline take_late() {  // an Expire: what waits and is late
  count = len(waiting);
  do
  :: count == 0 -> break
  :: count > 0 ->
     count--;
     waiting ? who;
     if
     :: KEEPER && who < now -> mine[who] = true; where[who] = OUT; late = true
     :: else -> waiting ! who
     fi
  od;
  who = 0
}

proctype Worker(byte me) {
  byte who, i, count;
  bool mine[REQUESTS], tell, late, due;
  if
  :: DIES ->  // prepare() throws: lost_worker()
     atomic {
       serving--;
       if
       :: serving > 0 || closed
       :: else ->
          refusal = true;
          empty_queue();
          now_idle()
       fi
     }
     answer_mine();
     goto ended
  :: BUSY ->  // with a batch of others, until the end
     closed;
     goto ended
  :: !BUSY
  fi;
  do
  :: come_back(me);
     // await_due()
     do
     :: atomic {
          if
          :: closed || len(waiting) > 0 -> due = true
          :: else -> due = false; asleep++; changed[me] = false; sleeping[me] = true
          fi
        }
        if
        :: due -> break
        :: else ->
           do
           :: atomic { !sleeping[me] && changed[me] -> asleep--; told = (told > 0 -> told - 1 : 0) }
              break
           :: atomic { !sleeping[me] && !changed[me] -> sleeping[me] = true }
           od
        fi
     od;
     // try_take()
     late = false;
     atomic {
       if
       :: closed -> goto ended
       :: else
       fi;
       take_late();
       if
       :: late -> answering[me] = true
       :: !late && len(waiting) > 0 ->
          do
          :: len(waiting) > 0 && count < MOST ->
             waiting ? who;
             where[who] = IN_BATCH;
             batch[me * MOST + count] = who;
             count++
          :: else -> break
          od;
          size[me] = count;
          count = 0;
          who = 0;
          running[me] = true;
          given_up[me] = false;
          runs++;
          assert(runs <= WORKERS)
       :: else
       fi;
       if
       :: late || running[me] ->
          if
          :: len(waiting) > 0 -> tell_taker()
          :: else
          fi;
          grant_room();
          now_idle()
       :: else
       fi
     }
     notify_one();
     if
     :: late -> answer_mine()
     :: else
     fi;
     if
     :: !running[me] && !given_up[me]
     :: else ->
        atomic {  // ran()
          if
          :: given_up[me] -> due = false
          :: else -> running[me] = false; due = true
          fi
        }
        if
        :: due ->
           atomic {
             do
             :: count == size[me] -> break
             :: count < size[me] -> answer(batch[me * MOST + count]); count++
             od;
             count = 0
           }
        :: else
        fi;
        atomic {  // finish(), and came_back()
          if
          :: due ->
             runs--;
             if
             :: len(waiting) > 0 -> tell_taker()
             :: else
             fi;
             now_idle()
          :: !due && hung[me] -> hung[me] = false; serving++; refusal = false
          fi;
          given_up[me] = false
        }
        notify_one()
     fi
  od;
ended:
  over++
}

proctype Keeper() {
  byte who, i, count, w;
  bool mine[REQUESTS], late, hangs;
  do
  :: come_back(WORKERS);
     rung = false;  // `seen` is read
     late = false;
     atomic {
       if
       :: closed -> break
       :: else
       fi;
       take_late();
       care_next = NEVER;
       count = len(waiting);
       do
       :: count == 0 -> break
       :: count > 0 ->
          count--;
          waiting ? who;
          waiting ! who;
          care_next = (who < care_next -> who : care_next)
       od;
       who = 0;
       if
       :: late -> answering[WORKERS] = true
       :: else
       fi;
       grant_room();
       now_idle()
     }
     if
     :: late -> answer_mine()
     :: else ->
        if
        :: rung || now > care_next
        :: atomic { HANGS && running[0] -> w = 0; hangs = true }
        :: atomic { HANGS && running[WORKERS - 1] -> w = WORKERS - 1; hangs = true }
        fi;
        if
        :: hangs ->  // hang()
           atomic {
             hangs = running[w];
             if
             :: running[w] ->
                running[w] = false;
                given_up[w] = true;
                hung[w] = true;
                runs--;
                serving--;
                do
                :: count == size[w] -> break
                :: count < size[w] -> mine[batch[w * MOST + count]] = true; count++
                od;
                count = 0;
                if
                :: serving == 0 -> refusal = true; empty_queue()
                :: else
                fi;
                tell_all();
                now_idle()
             :: else
             fi
           }
           if
           :: hangs ->
              notify_all();
              answer_mine()
           :: else
           fi;
           hangs = false
        :: else
        fi
     fi
  od;
  over++
}

proctype Canceller() {
  byte who, i;
  bool got;
  atomic {
    if
    :: waiting ?? [0] ->
       waiting ?? 0;
       where[0] = OUT;
       got = true;
       grant_room();
       now_idle()
    :: else
    fi
  }
  if
  :: got -> atomic { answer(0) }
  :: else
  fi;
  over++
}

proctype Drainer() {
  byte who, i;
  atomic {
    draining = true;
    do
    :: len(seekers) > 0 -> seekers ? who; assert(room_answer[who] == 0); room_answer[who] = REFUSED
    :: else -> break
    od;
    who = 0;
    tell_all();
    if
    :: IDLE -> drained = true
    :: else -> drainer_waits = true
    fi
  }
  notify_all();
  atomic {
    drained ->
    for (i : 0 .. REQUESTS - 1) {
      assert(closed || answered[i] == 1 || where[i] == 0 || where[i] == TURNED_AWAY)
    }
  }
  over++
}

proctype Closer() {
  byte who, i;
  bool mine[REQUESTS];
  if
  :: CLOSES
  :: settled == REQUESTS
  fi;
  atomic {
    closed = true;
    empty_queue();
    tell_all();
    now_idle()
  }
  notify_all();
  rung = true;
  answer_mine();
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
  for (t : 0 .. REQUESTS - 1) { assert(answered[t] == (where[t] == TURNED_AWAY -> 0 : 1)) }
}
