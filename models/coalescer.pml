// coalescer.pml: callers take seats in a batch without a lock, and one of them runs it for all.
//
//   Models     src/batch/calls/open_seats.cpp: claim, show, allow, take_down.
//              src/batch/calls/coalescer.cpp: join, refuse. src/batch/calls/seats.cpp: arrive, joinable,
//              sit_down, stay, ask, try_leave. src/batch/calls/showing.cpp: try_claim, written, count_in,
//              show_seats, put_on_show, restock. src/batch/calls/leading.cpp: advance, take_due, take,
//              hand_over, appoint, keep_time, lead, claims_end. src/batch/calls/forming_batch.h: unwritten,
//              tell_next, met. src/batch/calls/run_end.h.
//   Safety     A caller has one answer. A batch has one leader at a time, and runs once all its rows are
//              written; what its members collect is published. One lane runs one batch. At the end nobody
//              is inside or parked, and the lane is free.
//   Liveness   Every caller is answered, at its deadline at the latest; a caller that waits while the lane
//              is free has somebody who keeps the time (invalid end states).
//   Fairness   None is needed.
//   Bound      CALLERS with a row each, batches of MOST rows, one lane. Deadlines pass (LATE), callers just
//              answered are expected back (RETURNS) until the time for that is over, the next batch is in
//              stock (STOCK), and close() comes (CLOSES), all at will. A member tells one other at least.
//              With LOOKS, members may see the result before they are told, and any of them may be appointed.
//              With HELPS, a leader may show the end of its run, and a member claims it and publishes. With
//              HELPS=2 one member does not, and one alone has a deadline.
//   Left out   Rows of other kinds (give_up), the door (lone_door.pml), members without a thread, but
//              for their seats (parker.pml). One batch is on show, not two. The
//              policy is decide() for one group: a batch is due when it is full or nobody is expected back.
//   Replayed   By coalescer_sim_test.cpp without a spare batch, so that one is on show in the code, too.
//
//   Run seats: safety CALLERS=3
//   Run late: safety CALLERS=3 LATE=1
//   Run returns: safety CALLERS=3 RETURNS=1
//   Run stock: safety CALLERS=3 STOCK=1
//   Run closes: safety CALLERS=2 CLOSES=1 STOCK=1 LATE=1
//   Run late_ends: ends CALLERS=2 LATE=1
//   Run looks: safety CALLERS=3 LOOKS=1 LATE=1
//   Run helps: safety CALLERS=3 LOOKS=1 LATE=1 HELPS=1
//   Run helps_few: safety CALLERS=3 LATE=1 HELPS=2
//   Replay returns: batch_sim_test CALLERS=3 RETURNS=1
//   Replay late: batch_sim_test CALLERS=3 RETURNS=1 LATE=1
//   Replay looks: batch_sim_test CALLERS=3 RETURNS=1 LATE=1 LOOKS=1
//   Replay helps: batch_sim_test CALLERS=5 RETURNS=1 LATE=1 LOOKS=1 HELPS=1
//   Replay closes: batch_sim_test CALLERS=3 RETURNS=1 CLOSES=1
//   Long chain: safety CALLERS=4 MOST=3
//   Long late_more: safety CALLERS=3 LATE=1 RETURNS=1 STOCK=1
//   Long stock_more: safety CALLERS=3 RETURNS=1 STOCK=1
//   Long closes_more: safety CALLERS=3 CLOSES=1 LATE=1

#include "replay.inc"

#ifndef LATE
#define LATE 0
#endif
#ifndef RETURNS
#define RETURNS 0
#endif
#ifndef STOCK
#define STOCK 0
#endif
#ifndef CLOSES
#define CLOSES 0
#endif
#ifndef LOOKS
#define LOOKS 0
#endif
#ifndef HELPS
#define HELPS 0
#endif
#ifndef MOST
#define MOST 2
#endif
#define BATCHES (CALLERS + STOCK)
#define MAY_BE_LATE (LATE && (HELPS < 2 || me == 0))
#define MAY_HELP (HELPS == 1 || (HELPS == 2 && me != 1))
#define NONE 30
#define AT(b, s) ((b) * MOST + (s))
#define ASK 1
#define DONE 2
#define LEAD 4
#define TAKE(note) told[AT(mine, seat)] = told[AT(mine, seat)] - note
#define MIN(a, b) ((a) < (b) -> (a) : (b))

// OpenSeats::word_: the batch on show, its seats taken, and how many are left. And ask_at_.
byte shown = NONE, word_seats, word_left;
byte ask_at;
// FormingBatch.
byte seats[BATCHES], living[BATCHES], leader[BATCHES], untold[BATCHES];
short unwritten[BATCHES];
bool taken[BATCHES], done[BATCHES], answers[BATCHES];
bool shown_end[BATCHES], claimed[BATCHES];  // RunEnd
bool gone[BATCHES * MOST], met[BATCHES * MOST];
byte told[BATCHES * MOST];
bool written[BATCHES * MOST];  // not in the code, as is the next
byte runs[BATCHES], over;
// Coalescer::State, under the lock.
bool lock, closed, watch;
chan forming = [BATCHES] of { byte };
byte spare = NONE, next_id, busy, inside, parked, returning;
byte watcher = NONE;  // AT(batch, seat)
bool time_is_over;    // returning_until has passed

inline hold() { atomic { !lock -> lock = true } }
inline let_go() { lock = false }

// Seats that were taken since; of the spare batch: it forms.
inline bring_in(which, all) {
  if
  :: all == seats[which]
  :: else ->
     if
     :: which == spare -> forming ! spare; spare = NONE
     :: else
     fi;
     inside = inside + (all - seats[which]);
     parked = parked + (all - seats[which]);
     living[which] = living[which] + (all - seats[which]);
     returning = (returning > all - seats[which] -> returning - (all - seats[which]) : 0);
     seats[which] = all;
     news = true
  fi
}

inline count_in() {
  atomic {
    if
    :: shown != NONE -> bring_in(shown, word_seats)
    :: else
    fi;
    news = false
  }
}

inline take_down(which) {
  atomic {
    if
    :: shown == which && which != NONE ->
       STEP(seats_take_down, me, word_seats, x = word_seats);
       shown = NONE;
       word_seats = 0;
       word_left = 0;
       bring_in(which, x);
       x = 0
    :: else
    fi
  }
}

inline set_limits(which) {  // limits_of()
  limit = MIN(MOST, inside + returning + (returning == 0 -> 1 : 0));
  if
  :: busy == 0 && returning > 0 -> limit = MIN(limit, seats[which] + returning)
  :: else
  fi
}

// Two steps where a caller's claim may come between: ask_at, then the word.
inline show_seats() {
  news = false;
  atomic {
    b = NONE;
    k = len(forming);
    do
    :: k == 0 -> break
    :: k > 0 ->
       k--;
       forming ? x;
       forming ! x;
       set_limits(x);
       if
       :: b == NONE && limit > seats[x] -> b = x
       :: else
       fi
    od;
    if
    :: b == NONE && spare != NONE && !(busy == 0 && len(forming) == 0 && returning == 0) -> b = spare
    :: else
    fi;
    x = 0; y = (shown == b -> NONE : shown)
  }
  take_down(y);
  if
  :: b == NONE
  :: else ->
     set_limits(b);
     STEP(seats_set_number, me, limit, ask_at = limit);
     if
     :: shown == b ->
        atomic {
          STEP(seats_allow, me, word_seats, word_left = MOST - word_seats);
          if
          :: word_seats != seats[b] ->
             bring_in(b, word_seats);
             news = (seats[b] >= limit)
          :: else
          fi
        }
     :: else ->
        atomic {
          STEP(seats_show, me, seats[b], shown = b);
          word_seats = seats[b]; word_left = MOST - seats[b]
        }
     fi
  fi;
  limit = 0
}

inline appoint(which) {  // the first, or with LOOKS one that led before
  x = 0;
  do
  :: x < seats[which] && gone[AT(which, x)] -> x++
  :: LOOKS && x + 1 < seats[which] && !gone[AT(which, x)] && !gone[AT(which, x + 1)] -> x++
  :: x < seats[which] && !gone[AT(which, x)] -> break
  od;
  assert(x < seats[which]);
  STEP(calls_appoint, me, x, leader[which] = x);
  wake_lead = AT(which, x);
  x = 0
}

// `mine`: the caller's batch, or NONE.
inline hand_over(batch, own) {
  atomic {
    if
    :: living[batch] == 0 -> busy--
    :: living[batch] != 0 && own == batch -> STEP(calls_lead, me, seat, leader[batch] = seat); lead = true
    :: living[batch] != 0 && (own != batch || LOOKS) -> appoint(batch)
    fi
  }
}

inline expire_returning() { returning = (time_is_over -> 0 : returning) }

inline take_due(own) {
  do
  :: len(forming) == 0 || busy > 0 -> break
  :: len(forming) > 0 && busy == 0 ->
     atomic {
       expire_returning();
       due = NONE;
       k = len(forming);
       do
       :: k == 0 -> break
       :: k > 0 ->
          k--;
          forming ? x;
          forming ! x;
          if
          :: due == NONE && (returning == 0 || seats[x] >= MIN(MOST, inside + returning)) -> due = x
          :: else
          fi
       od;
       x = 0
     }
     if
     :: due == NONE ->
        atomic {  // keep_time()
          if
          :: watch
          :: !watch && own != NONE && !taken[own] -> watch = true; watcher = AT(own, seat); timed = true
          :: else ->
             watch = true;
             forming ? < due >;
             x = 0;
             do
             :: gone[AT(due, x)] -> x++
             :: else -> break
             od;
             watcher = AT(due, x); wake_ask = watcher;
             x = 0; due = NONE
          fi
        }
        break
     :: else ->  // take()
        forming ?? eval(due);
        take_down(due);
        restock(true);
        atomic {
          STEP(calls_take, me, seats[due], busy++);
          assert(busy == 1);
          taken[due] = true;
          leader[due] = NONE;
          end_watch(watcher / MOST == due)
        }
        expect_rows(due);
        if
        :: was -> hand_over(due, own)
        :: else
        fi;
        atomic { was = false; due = NONE }
     fi
  od
}

inline restock(needed) {
  if
  :: needed && STOCK && spare == NONE && next_id < BATCHES && !closed -> atomic { spare = next_id; next_id++ }
  :: else
  fi
}

inline advance(own) {
  do
  :: take_due(own);
     restock(len(forming) > 0);
     show_seats();
     if
     :: news
     :: else ->  // clear_up()
        atomic {
          returning = (inside == 0 && time_is_over -> 0 : returning);
          y = (inside == 0 && returning == 0 -> spare : NONE)
        }
        take_down(y);
        spare = (y == NONE -> spare : NONE);
        if
        :: y != NONE && inside > 0
        :: else -> break
        fi
     fi
  od;
  atomic { b = 0; news = false }
}

inline tell(who, note) { atomic { told[who] = told[who] | note } }

inline wake() {
  if
  :: wake_lead != NONE ->
     tell(wake_lead, LEAD);
     wake_lead = NONE
  :: else
  fi;
  if
  :: wake_ask != NONE ->
     tell(wake_ask, ASK);
     wake_ask = NONE
  :: else
  fi
}

inline let_go_and_wake() {
  let_go();
  wake()
}

#define WRITTEN(b) (unwritten[b] + seats[b] == 0)
inline expect_rows(which) {
  atomic {
    STEP(batch_expect_rows, me, WRITTEN(which), was = WRITTEN(which));
    unwritten[which] = unwritten[which] + seats[which]
  }
}

#define ASKS (seat == 0 || (seat < ask_at && seat + 1 >= ask_at))
inline claim_seat() {
  atomic {
    STEP(seats_claim, me, word_seats, shown != NONE && word_left > 0 -> mine = shown);
    seat = word_seats;
    word_seats++; word_left--
  }
  STEP(seats_look_at_number, me, ASKS, asks = ASKS)
}

// Under the lock, when no batch on show has a seat left: a new one is opened.
inline sit_down() {
  atomic {
    assert(spare == NONE || shown == spare);
    k = len(forming);
    do
    :: k == 0 -> break
    :: k > 0 ->
       k--;
       forming ? x;  // reached in long runs only: another batch is full
       forming ! x;  // reached in long runs only: the same
       assert(x == shown || seats[x] == MOST || seats[x] >= inside + returning + (returning > 0 -> 0 : 1))
    od;
    STEP(calls_sit_down, me, 0, mine = next_id);
    next_id++; forming ! mine;
    seat = 0;
    x = 0;
    bring_in(mine, 1);
    news = false
  }
}

inline after_run(callers) {
  atomic {
    STEP(calls_end_run, me, 0, busy--);
    inside = inside - callers;
    if
    :: RETURNS && inside + callers + returning > 1 -> returning = returning + callers; time_is_over = false
    :: true
    fi
  }
}

// One step of telling: the next that has not met its result.
inline tell_next() {
  do
  :: atomic { x = untold[mine]; untold[mine]++ }
     if
     :: x >= seats[mine] -> break
     :: else ->
        if
        :: met[AT(mine, x)]
        :: STEP(batch_tell, me, x, atomic { !met[AT(mine, x)] -> met[AT(mine, x)] = true });
           tell(AT(mine, x), DONE);
           if
           :: break
           :: true  // the code tells a few
           fi
        fi
     fi
  od;
  x = 0
}

inline end_watch(his) {
  if
  :: watch && his -> watch = false; watcher = NONE
  :: else
  fi
}

inline ask() {
  hold();
  STEP(calls_ask, me, 0, count_in());
  end_watch(watcher == AT(mine, seat));
  timed = false;
  advance(mine);
  let_go_and_wake()
}

// try_leave(): `left` is false where the answer is there.
inline leave() {
  hold();
  count_in();
  if
  :: STEP(calls_leave, me, 0, done[mine] -> left = false)
  :: STEP(calls_leave, me, 1, !done[mine] -> left = true);
     atomic {
       gone[AT(mine, seat)] = true;
       living[mine]--;
       parked--;
       inside--
     }
     met[AT(mine, seat)] = true;
     end_watch(watcher == AT(mine, seat));
     if
     :: living[mine] == 0 && !taken[mine] ->  // drop_empty()
        take_down(mine);
        if
        :: living[mine] == 0 -> forming ?? eval(mine)
        :: else
        fi
     :: living[mine] == 0 && taken[mine] && leader[mine] == seat -> atomic { busy--; runs[mine] = 0 }
     :: living[mine] != 0 && taken[mine] && leader[mine] == seat -> atomic { appoint(mine) }
     :: else
     fi;
     advance(NONE)
  fi;
  let_go_and_wake()
}

proctype Caller(byte me) {
  byte mine = NONE, seat, b, x, y, k, due, limit, note;
  byte wake_lead = NONE, wake_ask = NONE;
  bool asks, lead, timed, left, was, news, alone, has_end;
  // ---- a seat, or a lane at once
  if
  :: claim_seat()
  :: shown == NONE || word_left == 0 ->
     hold();  // again, where it makes a batch between
     atomic { count_in(); expire_returning() }
     if
     :: closed ->
        let_go();
        goto answered
     :: !closed && busy == 0 && len(forming) == 0 && returning == 0 ->
        atomic { STEP(calls_run_at_once, me, 0, inside++); busy++; alone = true }
        let_go();
        goto has_run
     :: else ->
        if
        :: atomic { claim_seat(); count_in() }
        :: shown == NONE || word_left == 0 ->
           y = (shown != NONE && seats[shown] < MOST -> shown : NONE);  // joinable(): its last seat is gone
           take_down(y);
           y = 0;
           sit_down()
        fi;
        advance(mine);
        asks = (seat == 0 && spare == NONE)
     fi;
     let_go_and_wake()
  fi;
  // ---- its rows
  written[AT(mine, seat)] = true;
  atomic { STEP(batch_write, me, unwritten[mine] == 1, unwritten[mine]--); was = (unwritten[mine] == 0) }
  if
  :: was ->
     hold();
     count_in();
     if
     :: done[mine]
     :: else ->
        hand_over(mine, mine);
        if
        :: living[mine] == 0 -> advance(NONE)
        :: else
        fi
     fi;
     let_go_and_wake()
     asks = false
  :: else
  fi;
  // ---- waiting
waiting:
  do
  :: lead -> break
  :: !lead ->
     if
     :: asks -> atomic { asks = false; note = ASK }
     :: !asks ->
        if
        :: atomic { (told[AT(mine, seat)] & LEAD) != 0 -> note = LEAD; TAKE(LEAD) }
        :: atomic { (told[AT(mine, seat)] & (LEAD | DONE)) == DONE -> note = DONE }
        :: atomic { told[AT(mine, seat)] == ASK -> note = ASK; told[AT(mine, seat)] = 0 }
        :: atomic { timed && time_is_over && told[AT(mine, seat)] == 0 -> note = ASK }
        :: atomic { MAY_BE_LATE && told[AT(mine, seat)] == 0 -> note = 0 }
        :: atomic { LOOKS && answers[mine] -> note = DONE }
        :: MAY_HELP && shown_end[mine] ->
           if
           :: STEP(batch_claim_end, me, 1, atomic { !claimed[mine] -> claimed[mine] = true });
              has_end = true; note = LEAD
           :: STEP(batch_claim_end, me, 0, claimed[mine]); note = NONE
           fi
        fi
     fi;
     if
     :: note == LEAD -> lead = true
     :: note == DONE -> goto collect
     :: note == ASK -> ask()
     :: note == NONE
     :: note == 0 ->
leaving:
        leave();
        if
        :: left -> goto answered
        :: else -> goto collect
        fi
     fi
  od;
  // ---- leading
  if
  :: shown_end[mine]
  :: else ->
     atomic {
       runs[mine]++;
       assert(runs[mine] == 1 && unwritten[mine] == 0 && !done[mine] && taken[mine] && leader[mine] == seat);
       x = 0;
       do
       :: x == seats[mine] -> break
       :: x < seats[mine] -> assert(written[AT(mine, x)]); x++
       od;
       x = 0
     }
     if
     :: HELPS -> STEP(batch_show_end, me, 0, shown_end[mine] = true)
     :: true
     fi
  fi;
  if
  :: !shown_end[mine] || has_end
  :: shown_end[mine] && !has_end ->  // claims_end()
     do
     :: STEP(batch_claim_end, me, 1, atomic { !claimed[mine] -> claimed[mine] = true }); has_end = true; break
     :: STEP(batch_claim_end, me, 0, claimed[mine])
     :: claimed[mine] -> lead = false; goto waiting
     :: MAY_BE_LATE -> break
     od
  fi;
  if
  :: MAY_BE_LATE && !has_end ->  // its deadline passes while the run goes on: another member waits for it
     runs[mine] = (shown_end[mine] -> runs[mine] : runs[mine] - 1);
     lead = false;
     goto leaving
  :: !shown_end[mine] || has_end
  fi;
has_run:
  hold();
  count_in();
  atomic {
    if
    :: alone -> x = 1
    :: else ->
       assert(runs[mine] == 1 && !done[mine]);
       runs[mine]--;
       done[mine] = true;
       answers[mine] = true;  // the code shows it a moment later, with the lock still held
       leader[mine] = seat;
       x = living[mine];
       parked = parked - x
    fi
  }
  after_run(x);
  x = 0;
  advance(NONE);
  let_go_and_wake();
  if
  :: alone -> goto answered
  :: else
  fi;
collect:
  assert(done[mine]);
  atomic {
    STEP(batch_collect, me, met[AT(mine, seat)], was = met[AT(mine, seat)]);
    met[AT(mine, seat)] = true
  }
  if
  :: was || leader[mine] == seat -> tell_next()
  :: else
  fi;
answered:
  over++
}

// returning_until comes.
proctype Clock() {
end_wait:
  do
  :: atomic { !time_is_over && (returning > 0 || watch) -> time_is_over = true }
  od
}

proctype Closer() {  // refuse()
  byte me = CALLERS, mine, x, y, k;
  bool was, news;
  byte refused[BATCHES];
  hold();
  y = shown;
  take_down(y);
  atomic {
    STEP(calls_close, me, 0, closed = true);
    watch = false;
    watcher = NONE;
    k = 0;
    do
    :: len(forming) > 0 -> forming ? x; refused[k] = x + 1; k++
    :: len(forming) == 0 -> break
    od;
    k = 0; x = 0; spare = NONE
  }
  atomic {
    do
    :: k < BATCHES && refused[k] != 0 ->
       mine = refused[k] - 1;
       taken[mine] = true;
       done[mine] = true;
       answers[mine] = true;
       leader[mine] = NONE;
       parked = parked - living[mine];
       inside = inside - living[mine];
       expect_rows(mine);
       k++
    :: else -> break
    od;
    k = 0
  }
  let_go();
  do
  :: k < BATCHES && refused[k] != 0 ->
     mine = refused[k] - 1;
     tell_next();
     k++
  :: else -> break
  od;
  over++
}

init {
  byte t;
  REPLAY_BEGIN;
  atomic {
    for (t : 1 .. CALLERS) { run Caller(t - 1) }
    if
    :: RETURNS -> run Clock()
    :: else
    fi;
    if
    :: CLOSES -> run Closer()
    :: else -> over++
    fi
  }
  over == CALLERS + 1;
  assert(!lock && busy == 0 && inside == 0 && parked == 0 && len(forming) == 0);
  for (t : 0 .. BATCHES - 1) { assert(runs[t] == 0) };
  REPLAY_END
}
