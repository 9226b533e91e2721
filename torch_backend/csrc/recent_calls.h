// recent_calls.h: what the calls were that a thread made last, found without a word that other threads write.
//
//   What       A table of a thread's own, by a call's whole key, in front of a cache that all threads share:
//              there a hit counts a reader, and a reference to a value that every thread has that makes the
//              same call.
//   Own count  A value's references from here have a count of their own, which only this thread writes.
//   Forgotten  forget_recent_calls() lets no thread find what it had. The values go when others take their
//              places, or with the thread.
//   Bound      kSets * kWays values a thread, which the shared cache may have dropped.
//   Threads    A table is one thread's; forget_recent_calls(): any.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::torch_backend {

// Tables of an earlier epoch count for nothing.
inline std::atomic<uint64_t> recent_calls_epoch{1};
inline void forget_recent_calls() { recent_calls_epoch.fetch_add(1, std::memory_order_release); }

template <class Value>
class RecentCalls {
 public:
  static constexpr size_t kSets = 256, kWays = 2;

  // `find` gives the value where it is not here. It may call this table, and change what `key` shows.
  template <class Find>
  std::shared_ptr<const Value> find_or(std::string_view key, Find&& find) {
    if (sets_.empty()) sets_.resize(kSets);
    const size_t place = std::hash<std::string_view>{}(key) % kSets;
    const uint64_t epoch = recent_calls_epoch.load(std::memory_order_acquire);
    for (Entry& entry : sets_[place].entries) {
      if (entry.epoch == epoch && entry.key == key) return entry.value;
    }
    std::string kept_key(key);
    std::shared_ptr<const Value> found = find();
    const Value* const value = found.get();
    Set& set = sets_[place];
    Entry& entry = set.entries[set.oldest];
    set.oldest = (set.oldest + 1) % kWays;
    entry.epoch = epoch;  // as before find(): what was forgotten meanwhile stays so
    entry.key = std::move(kept_key);
    entry.value = {value, [kept = std::move(found)](const Value*) {}};
    return entry.value;
  }

 private:
  struct Entry {
    uint64_t epoch = 0;
    std::string key;
    std::shared_ptr<const Value> value;
  };
  struct Set {
    std::array<Entry, kWays> entries;
    size_t oldest = 0;  // the next to make room
  };
  std::vector<Set> sets_;
};

}  // namespace heddle::torch_backend
