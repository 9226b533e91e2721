// coalescer.pml: callers take seats in a batch without a lock, and one of them runs it for all.
//
//   Models     src/batch/calls/open_seats.cpp: claim, show, allow, take_down.
//              src/batch/calls/coalescer.cpp: join, refuse. src/batch/calls/seats.cpp: arrive, joinable,
//              sit_down, stay, ask, try_leave. src/batch/calls/showing.cpp: try_claim, written, count_in,
//              show_seats, put_on_show, restock. src/batch/calls/leading.cpp: advance, take_due, take,
//              hand_over, appoint, keep_time, lead. src/batch/calls/forming_batch.h: unwritten, tell_next,
//              met.
//   Safety     A caller has one answer. A batch has one leader at a time, and runs once all its rows are
//              written; what its members collect is published. One lane runs one batch. At the end nobody
//              is inside or parked, and the lane is free.
//   Liveness   Every caller is answered, at its deadline at the latest; a caller that waits while the lane
//              is free has somebody who keeps the time (invalid end states).
//   Fairness   None is needed.
//   Bound      CALLERS with a row each, batches of MOST rows, one lane. Deadlines pass (LATE), callers just
//              answered are expected back (RETURNS) until the time for that is over, the next batch is in
//              stock (STOCK), and close() comes (CLOSES), all at will. A member tells one other.
//   Left out   Rows of other kinds (give_up), the door (lone_door.pml), members without a thread, but
//              for their seats (parker.pml), looking before sleeping. One batch is on show, not two. The
//              policy is decide() for one group: a batch is due when it is full or nobody is expected back.
//
//   Run seats: safety CALLERS=3
//   Run late: safety CALLERS=3 LATE=1
//   Run returns: safety CALLERS=3 RETURNS=1
//   Run stock: safety CALLERS=3 STOCK=1
//   Run closes: safety CALLERS=2 CLOSES=1 STOCK=1 LATE=1
//   Run late_ends: ends CALLERS=2 LATE=1
//   Long chain: safety CALLERS=4 MOST=3
//   Long late_more: safety CALLERS=3 LATE=1 RETURNS=1 STOCK=1
//   Long stock_more: safety CALLERS=3 RETURNS=1 STOCK=1
//   Long closes_more: safety CALLERS=3 CLOSES=1 LATE=1

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
#ifndef MOST
#define MOST 2
#endif
#define BATCHES (CALLERS + STOCK)
#define NONE 30
#define AT(b, s) ((b) * MOST + (s))
#define ASK 1
#define DONE 2
#define LEAD 4
#define MIN(a, b) ((a) < (b) -> (a) : (b))

// OpenSeats::word_: the batch on show, its seats taken, and how many are left. And ask_at_.
byte shown = NONE, word_seats, word_left;
byte ask_at;
// FormingBatch.
byte seats[BATCHES], living[BATCHES], leader[BATCHES], untold[BATCHES];
short unwritten[BATCHES];
bool taken[BATCHES], done[BATCHES];
bool gone[BATCHES * MOST], met[BATCHES * MOST];
byte told[BATCHES * MOST];
bool written[BATCHES * MOST];  // not in the code, as is the next
byte runs[BATCHES];
// Coalescer::State, under the lock.
bool lock, closed, watch;
chan forming = [BATCHES] of { byte };
byte spare = NONE, next_id, busy, inside, parked, returning;
byte watcher = NONE;  // AT(batch, seat)
bool time_is_over;    // returning_until has passed
byte over;

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
       x = word_seats;
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
    x = 0
  }
  if
  :: shown != NONE && shown != b ->
     y = shown;
     take_down(y)
  :: else
  fi;
  if
  :: b == NONE
  :: else ->
     set_limits(b);
     ask_at = limit;
     if
     :: shown == b ->
        atomic {
          word_left = MOST - word_seats;
          if
          :: word_seats != seats[b] ->
             bring_in(b, word_seats);
             news = (seats[b] >= limit)
          :: else
          fi
        }
     :: else -> atomic { shown = b; word_seats = seats[b]; word_left = MOST - seats[b] }
     fi
  fi;
  limit = 0
}

inline appoint(which) {
  x = 0;
  do
  :: x < seats[which] && gone[AT(which, x)] -> x++
  :: else -> break
  od;
  assert(x < seats[which]);
  leader[which] = x;
  wake_lead = AT(which, x);
  x = 0
}

// `mine`: the caller's batch, or NONE.
inline hand_over(batch, own) {
  atomic {
    if
    :: living[batch] == 0 -> busy--
    :: living[batch] != 0 && own == batch -> leader[batch] = seat; lead = true
    :: else -> appoint(batch)
    fi
  }
}

inline take_due(own) {
  do
  :: len(forming) == 0 || busy > 0 -> break
  :: len(forming) > 0 && busy == 0 ->
     atomic {
       if
       :: time_is_over -> returning = 0
       :: else
       fi;
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
             watcher = AT(due, x);
             wake_ask = watcher;
             x = 0;
             due = NONE
          fi
        }
        break
     :: else ->  // take()
        forming ?? eval(due);
        take_down(due);
        restock();
        atomic {
          busy++;
          assert(busy == 1);
          taken[due] = true;
          if
          :: watch && watcher / MOST == due -> watch = false; watcher = NONE
          :: else
          fi
        }
        atomic { unwritten[due] = unwritten[due] + seats[due]; k = (unwritten[due] == 0 -> 1 : 0) }
        if
        :: k == 1 -> hand_over(due, own)
        :: else
        fi;
        atomic { k = 0; due = NONE }
     fi
  od
}

inline restock() {
  if
  :: STOCK && spare == NONE && next_id < BATCHES && !closed -> atomic { spare = next_id; next_id++ }
  :: else
  fi
}

inline advance(own) {
  do
  :: take_due(own);
     if
     :: len(forming) > 0 -> restock()
     :: else
     fi;
     show_seats();
     if
     :: !news -> break
     :: else
     fi
  od;
  if
  :: inside == 0 && returning == 0 && spare != NONE ->
     y = spare;
     take_down(y);
     spare = NONE
  :: else
  fi;
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

inline claim_seat() {
  atomic {
    shown != NONE && word_left > 0 ->
    mine = shown;
    seat = word_seats;
    word_seats++;
    word_left--
  }
}

// Under the lock, when no batch on show has a seat left: a new one is opened. joinable() finds none within
// this bound.
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
    mine = next_id;
    next_id++;
    forming ! mine;
    seat = 0;
    x = 0;
    bring_in(mine, 1);
    news = false
  }
}

inline after_run(callers) {
  atomic {
    inside = inside - callers;
    busy--;
    if
    :: RETURNS && inside > 0 -> returning = returning + callers; time_is_over = false
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
        atomic { was = met[AT(mine, x)]; met[AT(mine, x)] = true }
        if
        :: was
        :: else ->
           tell(AT(mine, x), DONE);
           break
        fi
     fi
  od;
  x = 0
}

inline ask() {
  hold();
  count_in();
  if
  :: watch && watcher == AT(mine, seat) -> watch = false; watcher = NONE
  :: else
  fi;
  timed = false;
  advance(mine);
  let_go();
  wake()
}

// try_leave(): `left` is false where the answer is there.
inline leave() {
  hold();
  count_in();
  if
  :: done[mine] -> left = false
  :: else ->
     left = true;
     atomic {
       gone[AT(mine, seat)] = true;
       living[mine]--;
       parked--;
       inside--
     }
     met[AT(mine, seat)] = true;
     if
     :: watch && watcher == AT(mine, seat) ->
        watch = false;  // reached in long runs only: with LATE and RETURNS
        watcher = NONE  // reached in long runs only: likewise
     :: else
     fi;
     if
     :: living[mine] == 0 && !taken[mine] ->  // drop_empty()
        take_down(mine);
        if
        :: living[mine] == 0 -> forming ?? eval(mine)
        :: else
        fi
     :: living[mine] == 0 && taken[mine] && leader[mine] == seat -> busy--
     :: living[mine] != 0 && taken[mine] && leader[mine] == seat -> atomic { appoint(mine) }
     :: else
     fi;
     advance(NONE)
  fi;
  let_go();
  wake()
}

proctype Caller() {
  byte mine = NONE, seat, b, x, y, k, due, limit, note;
  byte wake_lead = NONE, wake_ask = NONE;
  bool asks, lead, timed, left, was, news, alone;
  // ---- a seat, or a lane at once
  if
  :: claim_seat();
     asks = (seat == 0 || (seat < ask_at && seat + 1 >= ask_at))
  :: shown == NONE || word_left == 0 ->
     hold();
     count_in();
     if
     :: closed ->
        let_go();
        goto answered
     :: !closed && busy == 0 && len(forming) == 0 && returning == 0 ->
        atomic { inside++; busy++; alone = true }
     :: else ->
        if
        :: claim_seat();
           count_in()
        :: shown == NONE || word_left == 0 -> sit_down()
        fi;
        advance(mine)
     fi;
     let_go();
     wake()
  fi;
  if
  :: alone -> goto has_run
  :: else
  fi;
  // ---- its rows
  written[AT(mine, seat)] = true;
  atomic { unwritten[mine]--; was = (unwritten[mine] == 0) }
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
     let_go();
     wake()
     asks = false
  :: else
  fi;
  // ---- waiting
  do
  :: lead -> break
  :: !lead ->
     if
     :: asks -> atomic { asks = false; note = ASK }
     :: !asks ->
        if
        :: atomic { (told[AT(mine, seat)] & LEAD) != 0 -> note = LEAD }
        :: atomic { (told[AT(mine, seat)] & (LEAD | DONE)) == DONE -> note = DONE }
        :: atomic { told[AT(mine, seat)] == ASK -> note = ASK; told[AT(mine, seat)] = 0 }
        :: atomic { timed && time_is_over && told[AT(mine, seat)] == 0 -> note = ASK }
        :: atomic { LATE && told[AT(mine, seat)] == 0 -> note = 0 }
        fi
     fi;
     if
     :: note == LEAD -> lead = true
     :: note == DONE -> goto collect
     :: note == ASK -> ask()
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
  :: LATE ->  // its deadline passes while the run goes on: another member waits for it
     runs[mine]--;
     goto leaving
  :: true
  fi;
has_run:
  hold();
  count_in();
  atomic {
    if
    :: alone -> x = 1
    :: else ->
       runs[mine]--;
       done[mine] = true;
       x = living[mine];
       parked = parked - x
    fi
  }
  after_run(x);
  x = 0;
  advance(NONE);
  let_go();
  wake();
  if
  :: alone -> goto answered
  :: else
  fi;
collect:
  assert(done[mine]);
  atomic { was = met[AT(mine, seat)]; met[AT(mine, seat)] = true }
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
  byte mine, x, y, k;
  bool was, news;
  byte refused[BATCHES];
  hold();
  y = shown;
  take_down(y);
  atomic {
    closed = true;
    watch = false;
    watcher = NONE;
    k = 0;
    do
    :: len(forming) > 0 -> forming ? x; refused[k] = x + 1; k++
    :: len(forming) == 0 -> break
    od;
    k = 0;
    x = 0
  }
  atomic {
    spare = NONE;
    do
    :: k < BATCHES && refused[k] != 0 ->
       mine = refused[k] - 1;
       taken[mine] = true;
       done[mine] = true;
       leader[mine] = NONE;
       parked = parked - living[mine];
       inside = inside - living[mine];
       unwritten[mine] = unwritten[mine] + seats[mine];
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
  atomic {
    for (t : 1 .. CALLERS) { run Caller() }
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
  for (t : 0 .. BATCHES - 1) { assert(runs[t] == 0) }
}
