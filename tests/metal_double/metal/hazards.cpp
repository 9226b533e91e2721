#include "hazards.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

namespace heddle::metal_double {
namespace {

// By queue number. Queues beyond the table are never retired: their knowledge is kept, which costs memory
// only.
constexpr size_t kTable = 1 << 16;
std::array<std::atomic<bool>, kTable> g_retired{};

bool is_retired(QueueNumber queue) {
  return queue < kTable && g_retired[queue].load(std::memory_order_acquire);
}

}  // namespace

bool Knowledge::covers(Place place) const {
  if (is_retired(place.queue)) return true;
  const auto all = up_to_.find(place.queue);
  if (all != up_to_.end() && place.pass <= all->second) return true;
  const auto some = beyond_.find(place.queue);
  return some != beyond_.end() && some->second.contains(place.pass);
}

void Knowledge::learn(const Knowledge& other) {
  for (const auto& [queue, pass] : other.up_to_) {
    if (!is_retired(queue)) learn_all_up_to({queue, pass});
  }
  for (const auto& [queue, passes] : other.beyond_) {
    for (const uint64_t pass : passes) learn_only({queue, pass});
  }
}

void Knowledge::learn_all_up_to(Place place) {
  uint64_t& known = up_to_[place.queue];
  known = std::max(known, place.pass);
  const auto some = beyond_.find(place.queue);
  if (some == beyond_.end()) return;
  some->second.erase(some->second.begin(), some->second.upper_bound(known));
  if (some->second.empty()) beyond_.erase(some);
}

void Knowledge::forget_retired() {
  std::erase_if(up_to_, [](const auto& entry) { return is_retired(entry.first); });
  std::erase_if(beyond_, [](const auto& entry) { return is_retired(entry.first); });
}

void Knowledge::learn_only(Place place) {
  if (!covers(place)) beyond_[place.queue].insert(place.pass);
}

namespace {

bool overlap(Bytes a, Bytes b) { return a.begin < b.end && b.begin < a.end; }
bool contains(Bytes outer, Bytes inner) { return outer.begin <= inner.begin && inner.end <= outer.end; }

std::string described(bool writes, Place place) {
  return std::string(writes ? "written" : "read") + " by pass " + std::to_string(place.pass) + " of queue " +
         std::to_string(place.queue);
}

}  // namespace

std::string AccessLog::record(Bytes bytes, bool writes, Place place, bool tracked, Knowledge* known) {
  for (const Entry& earlier : entries_) {
    const bool same_pass = earlier.place.queue == place.queue && earlier.place.pass == place.pass;
    if (same_pass || !overlap(earlier.bytes, bytes) || !(earlier.writes || writes)) continue;
    if (tracked && earlier.place.queue == place.queue) known->learn_only(earlier.place);
    if (!known->covers(earlier.place)) {
      return described(earlier.writes, earlier.place) + " and " + described(writes, place);
    }
  }
  std::erase_if(entries_, [&](const Entry& earlier) {
    const bool superseded =
        writes ? contains(bytes, earlier.bytes)
               : !earlier.writes && contains(bytes, earlier.bytes) && earlier.place.queue == place.queue;
    return superseded;
  });
  if (entries_.size() == kKept) entries_.erase(entries_.begin());
  entries_.push_back({bytes, writes, place});
  return {};
}

namespace {
struct Host {
  std::mutex lock;
  Knowledge seen;
};
Host& host() {
  static Host* const made = new Host;
  return *made;
}
}  // namespace

void retire(QueueNumber queue) {
  if (queue < kTable) g_retired[queue].store(true, std::memory_order_release);
  const std::lock_guard lock(host().lock);
  host().seen.forget_retired();
}

void host_saw(const Knowledge& completed) {
  const std::lock_guard lock(host().lock);
  host().seen.learn(completed);
}

Knowledge host_knowledge() {
  const std::lock_guard lock(host().lock);
  return host().seen;
}

}  // namespace heddle::metal_double
