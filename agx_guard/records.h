// records.h: what the guard knows of an encoder, found by the encoder's address.
//
//   Life      made when a factory returns the encoder (or at the first call on one that is unknown), given
//             back to the pool by -dealloc. The memory of a record is never freed: a waiter for its lock may
//             find it reused, which `encoder` tells.
//   Threads   Everything but `encoder`, `next` and `calls` belongs to the holder of `lock`.
#pragma once

#include "lock.h"
#include "settings_kept.h"

#import <Foundation/Foundation.h>

#include <memory>

namespace agx_guard {

struct Buffer;
struct Carrier;

struct Record {
  Lock lock;
  std::atomic<const void*> encoder{nullptr};  // its address; null: unused
  std::atomic<Record*> next{nullptr};         // in its chain
  std::atomic<uint64_t> calls{0};             // written under the lock
  std::atomic<bool> ended{false};             // written under the lock
  bool carries = false;                       // a kind of encoder whose late calls can be carried over
  bool forgets = false;                       // its settings were let go when its buffer completed
  std::shared_ptr<Buffer> buffer;             // null for an adopted encoder
  KeptSettings kept;
  Carrier* carrier = nullptr;  // what late calls are encoded into
};

// The encoder's record, locked, or null. Waits for the calls on it.
Record* lock_record(id encoder, const char* waiting);

// Without waiting for the lock, which the caller has.
Record* known_record(id encoder);

// Null also while a call on the encoder runs.
Record* try_lock_record(id encoder);

// Whether the encoder is known and has not ended.
bool is_open(id encoder);

// As lock_record(), but makes a record for an encoder that has none.
Record* lock_or_adopt(id encoder, const char* waiting);

// Makes the record of a new encoder; false when it has one (a factory that calls another).
bool track(id encoder, std::shared_ptr<Buffer> buffer);

// Of a locked record: takes it out of the table, so that no call finds it any more.
void forget(Record& record);

// Of a forgotten and unlocked record.
void recycle(Record& record);

// Forgets every record, waiting for the calls on each.
void forget_all();

struct Tracked {
  uint64_t records, open, calls;
};
Tracked count_tracked();

}  // namespace agx_guard
