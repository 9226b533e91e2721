#include "device/timeline.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/yield.h"

namespace heddle::device {

Status Timeline::failure() const {
  if (!failed()) return {};
  if (!is_ours()) return forked();
  return waiters_.lock()->cause;
}

template <class Settled>
void Timeline::look_until(TimePoint end, Settled&& settled) {
  while (!settled() && Clock::real().now() < end) {
    relax_processor(1);
    look();
  }
}

Status Timeline::wait(uint64_t value, Deadline deadline) {
  const auto settled = [&] { return done(value) || failed(); };
  if (!settled()) {
    if (!is_ours()) [[unlikely]]
      return forked();
    want(value);
    look();
  }
  if (const Duration patience = settled() ? Duration(0) : begin_looking(); patience > Duration(0)) {
    look_until(std::min(Deadline::in(patience).when(), deadline.when()), settled);
    end_looking();
  }
  if (done(value)) return {};
  // Looked at again: the value may have been reached, and the failure come, since.
  if (failed()) return done(value) ? Status() : failure();
  watch(value);
  bool over = false;
  {
    auto waiters = waiters_.lock();
    parked_.add_seq_cst(1);  // before the predicate reads reached_: pairs with advance()
    seam::did("timeline.park");
    over = waiters.wait_until(deadline, [&] {
      const bool is_reached = reached_.load_seq_cst() >= value;
      seam::did("timeline.look_parked", is_reached);
      return is_reached || failed_.load_relaxed();  // set under this lock
    });
    parked_.sub_relaxed(1);
    seam::did("timeline.unpark");
  }
  if (done(value)) return {};
  if (over) return failure();
  return Status::deadline("submission ", value, " was not over in time; the queue has reached ", reached());
}

Ref<const Stamp> Timeline::stamp(uint64_t value, const Clock& clock) {
  auto stamp = std::make_shared<Stamp>(clock);
  if (!is_ours()) return stamp;
  auto waiters = waiters_.lock();
  stamped_.add_seq_cst(1);  // before reached_ is read: pairs with advance()
  seam::did("timeline.count_stamp");
  const bool is_reached = reached_.load_seq_cst() >= value;
  seam::did("timeline.look_stamped", is_reached);
  if (is_reached || failed_.load_relaxed()) {
    stamped_.sub_relaxed(1);
    stamp->fill();
  } else {
    waiters->stamps.emplace_back(value, stamp);
  }
  return stamp;
}

size_t Timeline::fill_stamps(Waiters& waiters, uint64_t value) {
  stamped_.sub_relaxed(std::erase_if(waiters.stamps, [&](const auto& entry) {
    if (entry.first > value) return false;
    entry.second->fill();
    return true;
  }));
  seam::did("timeline.fill_stamps", static_cast<int64_t>(waiters.stamps.size()));
  return waiters.stamps.size();
}

void Timeline::advance(uint64_t value, Completion) {
  if (failed_.load_relaxed()) return;  // this path's own, as is the next
  const uint64_t before = reached_.load_relaxed();
  // Who sees the value reached may go on at once, and its time must not depend on what they do.
  size_t left = 0;
  const bool any = stamped_.load_relaxed() != 0;
  seam::did("timeline.look_for_stamps", any);
  if (any) left = fill_stamps(*waiters_.lock(), value);
  reached_.store_seq_cst(value);
  seam::did("timeline.reach", static_cast<int64_t>(value));
  // Nobody else takes a stamp away: where the count is the same, none came since.
  const bool sleeps = parked_.load_seq_cst() != 0;
  seam::did("timeline.look_for_parked", sleeps);
  if (sleeps || stamped_.load_seq_cst() != left) {
    // Taken even when there is nothing to stamp: a waiter that has read the old value holds the lock until it
    // sleeps.
    fill_stamps(*waiters_.lock(), value);
  }
  if (sleeps) waiters_.notify_all();
  const bool rings = rings_at_.load_seq_cst() > before;
  seam::did("timeline.look_for_bells", rings);
  if (rings && bell_ != nullptr) bell_->ring();
}

bool Timeline::ring_at(uint64_t value) {
  {
    const auto one_writer = waiters_.lock();
    if (value > rings_at_.load_relaxed()) rings_at_.store_seq_cst(value);
    seam::did("timeline.ring_at", static_cast<int64_t>(value));
  }
  watch(value);
  const bool is_ahead = reached_.load_seq_cst() < value;
  seam::did("timeline.look_ahead", is_ahead);
  return is_ahead && !failed();
}

void Timeline::fail(Status cause, Completion) {
  {
    auto waiters = waiters_.lock();
    if (failed_.load_relaxed()) return;
    waiters->cause = std::move(cause);
    seam::did("timeline.tell_cause");
    failed_.store_release(true);  // pairs with failed()
    seam::did("timeline.fail");
    fill_stamps(*waiters, std::numeric_limits<uint64_t>::max());
  }
  waiters_.notify_all();
  if (bell_ != nullptr) bell_->ring();
}

}  // namespace heddle::device
