// records.pml: what agx_guard knows of an encoder, from the factory to -dealloc and the next encoder.
//
//   Models     agx_guard/records.mm: lock_record, lock_or_adopt, find, glance, track, insert, forget,
//              recycle. agx_guard/hook.mm: Use, deallocate. agx_guard/lock.cpp and agx_guard/lock.h: lock,
//              wait, wake, with the mutex of the lot (run `lock`). agx_guard/buffers.mm: keep_encoder,
//              completed.
//   Safety     The driver runs one call on an encoder at a time, and none while it destroys it or once it
//              is gone. A call finds its own encoder's record. A record is in the chain or in the pool,
//              once, and its lock has one holder. An encoder lives until its command buffer completes,
//              though its owner let go of it.
//   Liveness   A call waits no longer than the calls on its encoder run, and none is dropped (invalid end
//              states). Waiters for a lock, one handed over included, get it (run `lock`). A search that
//              found a record which was used again starts over, and ends (ends_fairly).
//   Fairness   Weak: threads that run go on.
//   Bound      CALLERS that call an encoder CALLS times while its buffer has not completed, one that calls
//              by a bare pointer at any time, and an encoder whose record goes through the pool meanwhile;
//              with AGAIN another is made at the same address. LOCKERS of one lock, who may get impatient
//              (kPatience), unless PATIENT.
//   Left out   Nested calls and children, carriers for late calls, several chains: other encoders of a
//              chain only lengthen it. The waits of a lot are those of its condition variable.
//
//   Run life: safety CALLERS=1
//   Run life_again: safety CALLERS=1 AGAIN=1 CALLS=0
//   Run life_ends: ends_fairly CALLERS=1 CALLS=0
//   Run lock: safety LOCKERS=3
//   Run lock_patient: safety LOCKERS=3 PATIENT=1
//   Long life_more: safety CALLERS=2
//   Long life_again_more: safety CALLERS=1 AGAIN=1

#ifndef CALLERS
#define CALLERS 0
#endif
#ifndef AGAIN
#define AGAIN 0
#endif
#ifndef LOCKERS
#define LOCKERS 0
#endif
#ifndef PATIENT
#define PATIENT 0
#endif
#ifndef CALLS
#define CALLS 1
#endif
#define RECORDS 3
#define NOBODY 20
#define NONE 9
#define MINE 1   // the address of the encoder, and of the next one that is made there
#define OTHER 2  // an encoder whose record comes from the same pool

byte over;

// ---- an encoder's life

byte encoder[RECORDS];  // Record::encoder: an address or 0
byte next[RECORDS];     // Record::next
byte head = NONE;       // of the chain
bool stripe;            // its mutex
bool pooled[RECORDS];
bool pool_lock;
byte holder[RECORDS];  // of Record::lock, a thread, or NOBODY
byte retains = 0;      // of the encoder at MINE
bool gone;             // it has been destroyed; not in the code, as are the next two
bool destroying;
byte inside;
bool completed;  // its command buffer
byte kept;       // references of Buffer::encoders

inline glance(address) {
  found = head;
  do
  :: found == NONE -> break
  :: found != NONE ->
     if
     :: encoder[found] == address -> break
     :: else -> found = next[found]
     fi
  od
}

// Readers take no lock; what they miss they look for again under the stripe's.
inline find(address) {
  glance(address);
  if
  :: found != NONE
  :: else ->
     atomic { !stripe -> stripe = true }
     glance(address);
     stripe = false
  fi
}

inline lock_record(address) {
  do
  :: find(address);
     if
     :: found == NONE -> break
     :: else ->
        atomic { holder[found] == NOBODY -> holder[found] = me }
        if
        :: encoder[found] == address -> break
        :: else -> holder[found] = NOBODY
        fi
     fi
  od
}

inline track(address) {
  atomic { !stripe -> stripe = true }
  found = head;
  do
  :: found == NONE -> break
  :: found != NONE && encoder[found] == address -> break
  :: found != NONE && encoder[found] != address -> found = next[found]
  od;
  if
  :: found != NONE
  :: else ->
     atomic {  // take_from_pool()
       !pool_lock ->
       found = 0;
       do
       :: pooled[found] -> break
       :: !pooled[found] -> found++; assert(found < RECORDS)
       od;
       pooled[found] = false
     }
     next[found] = head;
     encoder[found] = address;
     head = found
  fi;
  stripe = false
}

inline forget(record) {
  atomic { !stripe -> stripe = true }
  if
  :: head == record -> head = next[record]
  :: else ->
     assert(next[head] == record);
     next[head] = next[record]
  fi;
  encoder[record] = 0;
  stripe = false
}

inline recycle(record) {
  atomic { assert(!pooled[record]); pooled[record] = true }
}

// -release, and -dealloc by the last one: deallocate().
inline release() {
  atomic { assert(retains > 0); retains--; last = (retains == 0) }
  if
  :: last ->
     last = false;
     lock_record(MINE);
     record = found;
     if
     :: record != NONE -> forget(record)
     :: else
     fi;
     atomic { assert(inside == 0 && !gone && retains == 0 && completed); destroying = true }
     atomic { destroying = false; gone = true }  // the original
     if
     :: record != NONE ->
        holder[record] = NOBODY;
        recycle(record)
     :: else
     fi
  :: else
  fi
}

// hook() with Use: the encoder is retained by its buffer, not by the caller.
proctype Caller(byte me) {
  byte found, record, times;
  bool last;
  do
  :: times == CALLS -> break
  :: times < CALLS ->
     if
     :: atomic { !completed -> retains++ }  // for the call, while the buffer keeps the encoder
     :: completed -> break
     fi;
     do  // lock_or_adopt
     :: lock_record(MINE);
        if
        :: found != NONE -> break
        :: else -> track(MINE)
        fi
     od;
     record = found;
     assert(holder[record] == me && encoder[record] == MINE);
     atomic { inside++; assert(inside == 1 && !gone && !destroying) }
     inside--;
     holder[record] = NOBODY;
     release();
     times++
  od;
  over++
}

// A call by a bare pointer, with no reference of its own: the record may be another encoder's by then.
proctype Stranger(byte me) {
  byte found;
  lock_record(MINE);
  if
  :: found == NONE  // it is gone
  :: else ->
     assert(encoder[found] == MINE && !pooled[found]);
     atomic { inside++; assert(inside == 1 && !gone && !destroying) }
     inside--;
     assert(encoder[found] == MINE);
     holder[found] = NOBODY
  fi;
  over++
}

// Who made it lets go at once; the buffer keeps it.
proctype Owner(byte me) {
  byte found, record;
  bool last;
  release();
  over++
}

proctype Completion(byte me) {
  byte found, record;
  bool last;
  atomic { completed = true; last = (kept > 0); kept = 0 }
  if
  :: last ->
     last = false;
     release()
  :: else
  fi;
  if
  :: AGAIN ->  // an address comes again
     gone;
     atomic { assert(inside == 0); gone = false; retains = 1 }
     track(MINE);
     release()
  :: else
  fi;
  over++
}

// The record of another encoder goes to the pool and comes from it meanwhile.
proctype Neighbour(byte me) {
  byte found;
  track(OTHER);
  lock_record(OTHER);
  assert(found != NONE);
  forget(found);
  holder[found] = NOBODY;
  recycle(found);
  over++
}

// ---- the lock's word

#define HELD 1
#define WAITED_FOR 2
#define IMPATIENT 3
byte word;
bool handed_over, lot, asleep[LOCKERS + 1];
byte inside_lock;

inline wake_all() {
  atomic {
    t = 0;
    do
    :: t == LOCKERS -> break
    :: t < LOCKERS -> asleep[t] = false; t++
    od;
    t = 0
  }
}

proctype Locker(byte me) {
  byte times, t, before;
  bool late;
  do
  :: times == 2 -> break
  :: times < 2 ->
     if
     :: atomic { word == 0 -> word = HELD }
     :: word != 0 ->  // wait()
        atomic { !lot -> lot = true }
        do
        :: handed_over -> break
        :: !handed_over ->
           atomic { before = word; word = WAITED_FOR }
           if
           :: before == 0 -> break
           :: else
           fi;
           if
           :: late -> word = IMPATIENT
           :: else
           fi;
           atomic { asleep[me] = true; lot = false }
           if
           :: atomic { !asleep[me] && !lot -> lot = true }
           :: atomic {
                !PATIENT && asleep[me] && !late && !lot -> asleep[me] = false;
                lot = true;
                late = true
              }
           fi
        od;
        handed_over = false;
        lot = false
     fi;
     late = false;
     atomic { inside_lock++; assert(inside_lock == 1) }
     inside_lock--;
     if
     :: atomic { word == HELD -> word = 0 }
     :: word != HELD ->  // wake()
        atomic { !lot -> lot = true }
        if
        :: word == IMPATIENT ->
           handed_over = true;
           word = WAITED_FOR
        :: else -> word = 0
        fi;
        wake_all();
        lot = false
     fi;
     times++
  od;
  over++
}

init {
  byte t;
  atomic {
    for (t : 0 .. RECORDS - 1) { pooled[t] = true; holder[t] = NOBODY; next[t] = NONE }
    t = 0;
    do
    :: t == LOCKERS -> break
    :: t < LOCKERS -> run Locker(t); t++
    od;
    if
    :: CALLERS > 0 ->
       // made_encoder(): tracked and kept by its buffer.
       pooled[0] = false;
       encoder[0] = MINE;
       head = 0;
       retains = 2;
       kept = 1;
       t = 0;
       do
       :: t == CALLERS -> break
       :: t < CALLERS -> run Caller(t); t++
       od;
       run Owner(t);
       run Completion(t + 1);
       run Neighbour(t + 2);
       run Stranger(t + 3)
    :: else -> over = over + 4
    fi
  }
  over == CALLERS + LOCKERS + 4;
  assert(word == 0 && !lot && !handed_over && !stripe && !pool_lock);
  for (t : 0 .. RECORDS - 1) {
    assert(holder[t] == NOBODY && (CALLERS == 0 || (pooled[t] && encoder[t] == 0)))
  }
}
