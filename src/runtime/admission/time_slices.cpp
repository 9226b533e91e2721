#include "runtime/admission/time_slices.h"

#include <algorithm>

#include "base/yield.h"
#include "runtime/thread_number.h"

namespace heddle::runtime {

TimeSlices::TimeSlices(int width, const Clock& clock)
    : clock_(clock), slices_(static_cast<size_t>(std::max(width, 1))) {}

TimeSlices::Stats TimeSlices::stats() const { return line_.lock()->stats; }

bool TimeSlices::begin(Slice& slice, uint64_t from, uint64_t owner) {
  yield_point("time_slices.begin");
  if (!slice.word.cas_strong_acq_rel(from, busy_of(owner))) return false;
  slice.calls.store_relaxed(slice.calls.load_relaxed() + 1);
  return true;
}

int TimeSlices::enter(Deadline deadline) {
  const uint64_t me = this_thread_number();
  const int last = last_places_.of(number_);
  if (static_cast<size_t>(last) < slices_.size()) {
    Slice& mine = slices_[static_cast<size_t>(last)];
    if (mine.word.load_relaxed() == busy_of(me)) return kNone;
    if (begin(mine, kept_by(me), me)) [[likely]]
      return last;
  }
  int place = waiting_.load_relaxed() == 0 ? take_free(me) : kNone;
  if (place == kNone) place = wait_in_line(me, deadline);
  last_places_.of(number_) = place;
  return place;
}

int TimeSlices::take_free(uint64_t owner) {
  for (size_t i = 0; i < slices_.size(); ++i) {
    if (slices_[i].word.load_relaxed() == 0 && begin(slices_[i], 0, owner)) return static_cast<int>(i);
  }
  return kNone;
}

void TimeSlices::leave(int place) {
  if (place == kNone) return;
  const uint64_t me = this_thread_number();
  Slice& slice = slices_[static_cast<size_t>(place)];
  if (waiting_.load_relaxed() == 0) [[likely]] {
    slice.since.store_relaxed(TimePoint::max());
  } else {
    const TimePoint now = clock_.now(), since = std::min(slice.since.load_relaxed(), now);
    slice.since.store_relaxed(since);
    if (now - since >= kSlice && pass_on(slice, place, busy_of(me))) return;
  }
  uint64_t mine = busy_of(me);
  slice.word.cas_strong_acq_rel(mine, kept_by(me));  // else it was taken: the call took long
}

void TimeSlices::rest() {
  const int place = last_places_.of(number_);
  if (static_cast<size_t>(place) >= slices_.size()) return;
  Slice& slice = slices_[static_cast<size_t>(place)];
  uint64_t mine = kept_by(this_thread_number());
  if (slice.word.load_relaxed() != mine) return;
  if (waiting_.load_relaxed() != 0 && pass_on(slice, place, mine)) return;
  slice.since.store_relaxed(TimePoint::max());
  slice.word.cas_strong_acq_rel(mine, 0);  // else it was taken as idle
}

// The slice goes to the first that waits. False: nobody does, or the slice was taken meanwhile.
bool TimeSlices::pass_on(Slice& slice, int place, uint64_t from) {
  auto line = line_.lock();
  if (line->waiters.empty()) return false;
  Waiter& next = *line->waiters.front();
  slice.since.store_relaxed(TimePoint::max());
  if (!slice.word.cas_strong_acq_rel(from, busy_of(next.owner))) return false;
  slice.calls.store_relaxed(slice.calls.load_relaxed() + 1);
  next.place = place;
  next.parker.tell(kLook);
  line->waiters.pop_front();
  ++line->stats.passed;
  removed(*line, true);
  return true;
}

void TimeSlices::removed(Line& line, bool was_first) {
  waiting_.store_relaxed(line.waiters.size());
  if (was_first && !line.waiters.empty()) line.waiters.front()->parker.tell(kLook);
}

int TimeSlices::wait_in_line(uint64_t owner, Deadline deadline) {
  const auto waiter = std::make_shared<Waiter>();
  waiter->owner = owner;
  {
    auto line = line_.lock();
    line->waiters.push_back(waiter);
    ++line->stats.waits;
    waiting_.store_relaxed(line->waiters.size());
  }
  for (std::vector<Seen> seen(slices_.size());;) {
    TimePoint until = deadline.when();
    {
      auto line = line_.lock();
      const auto at = std::ranges::find(line->waiters, waiter);
      if (at == line->waiters.end()) return waiter->place;
      const bool is_first = at == line->waiters.begin();
      const Taken taken = is_first ? take_idle(owner, seen) : Taken{};
      if (taken.place != kNone || deadline.expired(clock_)) {
        if (taken.counts != nullptr) ++(line->stats.*taken.counts);
        line->waiters.erase(at);
        removed(*line, is_first);
        return taken.place;
      }
      if (is_first) until = std::min(until, clock_.now() + kIdle);
    }
    waiter->parker.wait(Deadline::at(until));
    waiter->parker.take(kLook);
  }
}

TimeSlices::Taken TimeSlices::take_idle(uint64_t owner, std::vector<Seen>& seen) {
  const TimePoint now = clock_.now();
  for (size_t i = 0; i < slices_.size(); ++i) {
    Slice& slice = slices_[i];
    const uint64_t word = slice.word.load_relaxed(), calls = slice.calls.load_relaxed();
    if (word != seen[i].word || calls != seen[i].calls) seen[i] = {word, calls, now};
    const bool is_busy = (word & 1) != 0;
    const Duration patience = word == 0 ? Duration::zero() : is_busy ? kLong : kIdle;
    if (now - seen[i].at >= patience && begin(slice, word, owner))
      return {static_cast<int>(i), is_busy ? &Stats::longs : &Stats::idle};
  }
  return {};
}

}  // namespace heddle::runtime
