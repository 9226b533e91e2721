// allocator_stats.cpp: what an allocator tells of itself.
#include <algorithm>

#include "runtime/memory/allocator.h"

namespace heddle::runtime {

using device::MemoryKind;

Status Allocator::exhausted(Want asked, const Status& why) const {
  const Stats all = stats();
  const bool staging = asked.kind == MemoryKind::staging;
  const KindStats& now = staging ? all.staging : all;
  return Status::exhausted("device '", device_->traits().name, "' has no ", asked.size, " bytes",
                           staging ? " of staging memory" : "", " more: ", now.allocated, " in use, ",
                           now.cached, " cached, ", now.pending, " awaiting their last submission, limit ",
                           now.limit, " (", why.message(),
                           "). Use smaller batches or fewer callers, or raise the memory fraction");
}

Allocator::Stats Allocator::sum() const {
  Stats stats;
  PerKind<int64_t> allocated{};
  const auto add = [&](const auto& part) {
    for (const MemoryKind kind : {MemoryKind::device, MemoryKind::staging}) {
      allocated[kind] += part.tally[kind].allocated;
      (kind == MemoryKind::staging ? stats.staging : stats).cached += part.tally[kind].cached;
    }
    stats.hits += part.hits;
    stats.recycled += part.recycled;
  };
  for (const PaddedStripe& stripe : stripes_) add(*stripe.data.lock());
  add(*large_.lock());
  // The parts were read one after another.
  stats.allocated = static_cast<uint64_t>(std::max<int64_t>(allocated[MemoryKind::device], 0));
  stats.staging.allocated = static_cast<uint64_t>(std::max<int64_t>(allocated[MemoryKind::staging], 0));
  return stats;
}

uint64_t Allocator::given(MemoryKind kind) const {
  uint64_t bytes = large_.lock()->tally[kind].given;
  for (const PaddedStripe& stripe : stripes_) bytes += stripe.data.lock()->tally[kind].given;
  return bytes;
}

// On the way of a call: a sample that would have to wait for a lock is left out.
void Allocator::note_peak(MemoryKind kind) {
  int64_t allocated = 0;
  const auto added = [&](auto& part) {
    const auto held = part.try_lock();
    if (held.has_value()) allocated += (*held)->tally[kind].allocated;
    return held.has_value();
  };
  for (PaddedStripe& stripe : stripes_) {
    if (!added(stripe.data)) return;
  }
  if (added(large_))
    of(kind).peak_allocated.max_relaxed(static_cast<uint64_t>(std::max<int64_t>(allocated, 0)));
}

Allocator::Stats Allocator::stats() const {
  Stats stats = sum();
  for (const MemoryKind which : {MemoryKind::device, MemoryKind::staging}) {
    KindStats& to = which == MemoryKind::staging ? stats.staging : stats;
    Kind& kind = of(which);
    to.pending = pending_.lock()->bytes[which];
    to.reserved = kind.reserved.load_relaxed();
    // A block that was given back and out again meanwhile may have been counted twice.
    to.allocated = std::min(to.allocated, to.reserved);
    kind.peak_allocated.max_relaxed(to.allocated);
    to.limit = kind.limit.load_relaxed();
    to.peak_reserved = kind.peak_reserved.load_relaxed();
    to.peak_allocated = kind.peak_allocated.load_relaxed();
  }
  stats.misses = misses_.load_relaxed();
  stats.driver_frees = driver_frees_.load_relaxed();
  stats.failures = failures_.load_relaxed();
  stats.pressure_calls = pressure_.calls();
  return stats;
}

void Allocator::reset_peaks() {
  const Stats now = sum();
  for (const MemoryKind which : {MemoryKind::device, MemoryKind::staging}) {
    Kind& kind = of(which);
    kind.peak_reserved.store_relaxed(kind.reserved.load_relaxed());
    kind.peak_allocated.store_relaxed(which == MemoryKind::staging ? now.staging.allocated : now.allocated);
  }
}

}  // namespace heddle::runtime
