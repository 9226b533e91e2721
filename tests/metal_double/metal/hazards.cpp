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

bool Knowledge::covers(Position position) const {
  if (is_retired(position.queue)) return true;
  const auto all = up_to_.find(position.queue);
  if (all != up_to_.end() && position.pass <= all->second) return true;
  const auto some = beyond_.find(position.queue);
  return some != beyond_.end() && some->second.contains(position.pass);
}

void Knowledge::learn(const Knowledge& other) {
  for (const auto& [queue, pass] : other.up_to_) {
    if (!is_retired(queue)) learn_all_up_to({queue, pass});
  }
  for (const auto& [queue, passes] : other.beyond_) {
    for (const uint64_t pass : passes) learn_only({queue, pass});
  }
}

void Knowledge::learn_all_up_to(Position position) {
  uint64_t& known = up_to_[position.queue];
  known = std::max(known, position.pass);
  const auto some = beyond_.find(position.queue);
  if (some == beyond_.end()) return;
  some->second.erase(some->second.begin(), some->second.upper_bound(known));
  if (some->second.empty()) beyond_.erase(some);
}

void Knowledge::forget_retired() {
  std::erase_if(up_to_, [](const auto& entry) { return is_retired(entry.first); });
  std::erase_if(beyond_, [](const auto& entry) { return is_retired(entry.first); });
}

void Knowledge::learn_only(Position position) {
  if (!covers(position)) beyond_[position.queue].insert(position.pass);
}

namespace {

bool overlap(Bytes a, Bytes b) { return a.begin < b.end && b.begin < a.end; }
bool contains(Bytes outer, Bytes inner) { return outer.begin <= inner.begin && inner.end <= outer.end; }

std::string described(bool writes, Position position) {
  return std::string(writes ? "written" : "read") + " by pass " + std::to_string(position.pass) +
         " of queue " + std::to_string(position.queue);
}

}  // namespace

std::string AccessLog::record(Bytes bytes, bool writes, Position position, bool tracked, Knowledge* known) {
  for (const Entry& earlier : entries_) {
    const bool same_pass = earlier.position.queue == position.queue && earlier.position.pass == position.pass;
    if (same_pass || !overlap(earlier.bytes, bytes) || !(earlier.writes || writes)) continue;
    if (tracked && earlier.position.queue == position.queue) known->learn_only(earlier.position);
    if (!known->covers(earlier.position)) {
      return described(earlier.writes, earlier.position) + " and " + described(writes, position);
    }
  }
  std::erase_if(entries_, [&](const Entry& earlier) {
    const bool superseded = writes ? contains(bytes, earlier.bytes)
                                   : !earlier.writes && contains(bytes, earlier.bytes) &&
                                         earlier.position.queue == position.queue;
    return superseded;
  });
  if (entries_.size() == kKept) entries_.erase(entries_.begin());
  entries_.push_back({bytes, writes, position});
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
