#include "drivers/sim/hazards.h"

#include <algorithm>

namespace heddle::sim {

void Retired::add(QueueNumber queue) {
  QueueNumber floor = floor_.load_relaxed();  // its only writer
  if (queue < floor || queue - floor >= kTable) return;
  words_[word(queue)].or_acq_rel(bit(queue));
  for (; (words_[word(floor)].load_relaxed() & bit(floor)) != 0; ++floor) {
    floor_.store_release(floor + 1);  // pairs with contains()
    words_[word(floor)].and_acq_rel(~bit(floor));
  }
}

bool Retired::contains(QueueNumber queue) const {
  const QueueNumber floor = floor_.load_acquire();
  if (queue < floor) return true;
  if (queue - floor >= kTable) return false;
  // A bit behind the ring's old end may be another queue's by now: then the floor has passed this one.
  if ((words_[word(queue)].load_acquire() & bit(queue)) != 0) return true;
  return queue < floor_.load_acquire();
}

bool Knowledge::covers(Position position) const {
  const auto all = up_to_.find(position.queue);
  if (all != up_to_.end() && position.pass <= all->second) return true;
  const auto some = beyond_.find(position.queue);
  return some != beyond_.end() && some->second.contains(position.pass);
}

void Knowledge::learn(const Knowledge& other) {
  for (const auto& [queue, pass] : other.up_to_) learn_all_up_to({queue, pass});
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

void Knowledge::learn_only(Position position) {
  if (!covers(position)) beyond_[position.queue].insert(position.pass);
}

void Knowledge::forget(const Retired& retired) {
  std::erase_if(up_to_, [&](const auto& entry) { return retired.contains(entry.first); });
  std::erase_if(beyond_, [&](const auto& entry) { return retired.contains(entry.first); });
}

namespace {

bool contains(Bytes outer, Bytes inner) { return outer.begin <= inner.begin && inner.end <= outer.end; }

std::string described(const Access& access) {
  return std::string(access.writes ? "written" : "read") + " by pass " +
         std::to_string(access.position.pass) + " of queue " + std::to_string(access.position.queue);
}

}  // namespace

std::string describe(const Access& earlier, const Access& later) {
  return described(earlier) + " and " + described(later);
}

std::optional<Access> AccessLog::record(const Access& access, bool tracked, Knowledge* known,
                                        const Retired& retired) {
  const Position position = access.position;
  for (const Access& earlier : entries_) {
    const bool same_queue = earlier.position.queue == position.queue;
    if (same_queue && earlier.position.pass == position.pass) continue;
    if (!overlap(earlier.bytes, access.bytes) || !(earlier.writes || access.writes)) continue;
    if (tracked && same_queue) known->learn_only(earlier.position);
    if (!known->covers(earlier.position) && !retired.contains(earlier.position.queue)) return earlier;
  }
  std::erase_if(entries_, [&](const Access& earlier) {
    const bool superseded = access.writes || (!earlier.writes && earlier.position.queue == position.queue);
    return superseded && contains(access.bytes, earlier.bytes);
  });
  if (entries_.size() == kKept) entries_.erase(entries_.begin());
  entries_.push_back(access);
  return std::nullopt;
}

}  // namespace heddle::sim
