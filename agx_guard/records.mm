#include "records.h"

#include "buffers.h"
#include "carry.h"
#include "counters.h"

#include <deque>
#include <mutex>
#include <vector>

namespace agx_guard {

namespace {

constexpr size_t kChains = 4096, kStripes = 64;
std::atomic<Record*> chains[kChains];
std::mutex stripes[kStripes];  // writers of a chain; readers take none

size_t chain_of(const void* encoder) {
  return (reinterpret_cast<uintptr_t>(encoder) >> 4) * 0x9E3779B1u % kChains;
}
std::mutex& stripe_of(const void* encoder) { return stripes[chain_of(encoder) % kStripes]; }

struct Pool {
  std::mutex lock;
  std::deque<Record> all;  // addresses stay
  std::vector<Record*> free;
};
Pool& pool() {
  static auto* const made = new Pool;
  return *made;
}

Record* take_from_pool() {
  Pool& records = pool();
  const std::lock_guard hold(records.lock);
  if (records.free.empty()) return &records.all.emplace_back();
  Record* const record = records.free.back();
  records.free.pop_back();
  return record;
}

// May miss a record while others are taken out of the chain; never finds a wrong one.
Record* glance(const void* encoder) {
  Record* record = chains[chain_of(encoder)].load(std::memory_order_acquire);
  for (int steps = 0; record && steps < 64; ++steps) {
    if (record->encoder.load(std::memory_order_acquire) == encoder) return record;
    record = record->next.load(std::memory_order_acquire);
  }
  return nullptr;
}

Record* find_in_chain(const void* encoder) {
  Record* record = chains[chain_of(encoder)].load(std::memory_order_acquire);
  while (record && record->encoder.load(std::memory_order_acquire) != encoder) {
    record = record->next.load(std::memory_order_acquire);
  }
  return record;
}

Record* find(const void* encoder) {
  if (Record* const record = glance(encoder)) [[likely]]
    return record;
  const std::lock_guard hold(stripe_of(encoder));
  return find_in_chain(encoder);
}

Record* insert(id of, std::shared_ptr<Buffer> buffer) {
  const void* const encoder = (const void*)of;
  Record* const record = take_from_pool();
  record->ended.store(false, std::memory_order_relaxed);
  record->carries = can_carry(of);
  record->forgets = false;
  record->buffer = std::move(buffer);
  std::atomic<Record*>& head = chains[chain_of(encoder)];
  record->next.store(head.load(std::memory_order_relaxed), std::memory_order_relaxed);
  record->encoder.store(encoder, std::memory_order_release);
  head.store(record, std::memory_order_release);
  return record;
}

}  // namespace

Record* lock_record(id encoder, const char* waiting) {
  while (Record* const record = find((const void*)encoder)) {
    record->lock.lock(waiting);
    if (record->encoder.load(std::memory_order_relaxed) == (const void*)encoder) [[likely]]
      return record;
    record->lock.unlock();
  }
  return nullptr;
}

Record* known_record(id encoder) { return find((const void*)encoder); }

Record* try_lock_record(id encoder) {
  Record* const record = find((const void*)encoder);
  if (!record || !record->lock.try_lock()) return nullptr;
  if (record->encoder.load(std::memory_order_relaxed) == (const void*)encoder) return record;
  record->lock.unlock();
  return nullptr;
}

bool is_open(id encoder) {
  const Record* const record = find((const void*)encoder);
  return record && !record->ended.load(std::memory_order_relaxed);
}

Record* lock_or_adopt(id encoder, const char* waiting) {
  while (true) {
    if (Record* const record = lock_record(encoder, waiting)) [[likely]]
      return record;
    if (track(encoder, nullptr)) counters.encoders_adopted.add();
  }
}

bool track(id encoder, std::shared_ptr<Buffer> buffer) {
  const std::lock_guard hold(stripe_of((const void*)encoder));
  if (find_in_chain((const void*)encoder)) return false;
  insert(encoder, std::move(buffer));
  return true;
}

void forget(Record& record) {
  const void* const encoder = record.encoder.load(std::memory_order_relaxed);
  const std::lock_guard hold(stripe_of(encoder));
  std::atomic<Record*>* link = &chains[chain_of(encoder)];
  while (link->load(std::memory_order_relaxed) != &record)
    link = &link->load(std::memory_order_relaxed)->next;
  link->store(record.next.load(std::memory_order_relaxed), std::memory_order_release);
  record.encoder.store(nullptr, std::memory_order_release);
}

void recycle(Record& record) {
  counters.calls.add(record.calls.load(std::memory_order_relaxed));
  record.calls.store(0, std::memory_order_relaxed);
  record.buffer.reset();
  Pool& records = pool();
  const std::lock_guard hold(records.lock);
  records.free.push_back(&record);
}

void forget_all() {
  std::vector<Record*> all;
  {
    Pool& records = pool();
    const std::lock_guard hold(records.lock);
    for (Record& record : records.all) all.push_back(&record);
  }
  for (Record* const record : all) {
    record->lock.lock("agx_guard_uninstall");
    const bool in_use = record->encoder.load(std::memory_order_relaxed) != nullptr;
    if (in_use) {
      close_carrier(*record);
      record->kept.clear();
      forget(*record);
    }
    record->lock.unlock();
    if (in_use) recycle(*record);
  }
}

Tracked count_tracked() {
  Tracked tracked{};
  Pool& records = pool();
  const std::lock_guard hold(records.lock);
  for (const Record& record : records.all) {
    tracked.calls += record.calls.load(std::memory_order_relaxed);
    if (record.encoder.load(std::memory_order_relaxed) == nullptr) continue;
    tracked.records++;
    tracked.open += !record.ended.load(std::memory_order_relaxed);
  }
  return tracked;
}

}  // namespace agx_guard
