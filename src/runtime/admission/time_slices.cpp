#include "runtime/admission/time_slices.h"

#include <algorithm>
#include <utility>

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
  const TimeLeft left = take_left();
  int place = waiting_.load_relaxed() == 0 ? take_free(me) : kNone;
  if (place == kNone) place = wait_in_line(me, left, deadline);
  last_places_.of(number_) = place;
  if (place == kNone) return place;
  Slice& mine = slices_[static_cast<size_t>(place)];
  mine.since.store_relaxed(left.slices == 0 ? TimePoint::max() : left.since);
  mine.begun.store_relaxed(clock_.now());
  return place;
}

// Nothing where its time is over.
TimeLeft TimeSlices::take_left() {
  if (left_.slices != number_) return {};
  const TimeLeft left = std::exchange(left_, TimeLeft{});
  return left.since == TimePoint::max() || clock_.now() - left.since < kSlice ? left : TimeLeft{};
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
    const bool is_over = now - since >= kSlice;
    const bool gives_back = rested_.load_relaxed() > 0 && now - slice.begun.load_relaxed() >= kGuest;
    if ((is_over || gives_back) && pass_on(slice, place, busy_of(me))) {
      if (!is_over) left_ = {number_, since, false};
      return;
    }
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
  left_ = {number_, slice.since.load_relaxed(), true};
  if (waiting_.load_relaxed() != 0 && pass_on(slice, place, mine)) return;
  slice.word.cas_strong_acq_rel(mine, 0);  // else it was taken as idle
}

// The slice goes to the first that waits. False: nobody does, or the slice was taken meanwhile.
bool TimeSlices::pass_on(Slice& slice, int place, uint64_t from) {
  auto line = line_.lock();
  if (line->waiters.empty()) return false;
  Waiter& next = *line->waiters.front();
  if (!slice.word.cas_strong_acq_rel(from, busy_of(next.owner))) return false;
  slice.calls.store_relaxed(slice.calls.load_relaxed() + 1);
  next.place = place;
  next.parker.tell(kLook);
  line->waiters.pop_front();
  ++line->stats.passed;
  changed(*line, true);
  return true;
}

void TimeSlices::changed(const Line& line, bool first_left) {
  waiting_.store_relaxed(line.waiters.size());
  const auto has_rested = [](const auto& each) { return each->has_rested; };
  rested_.store_relaxed(static_cast<size_t>(std::ranges::count_if(line.waiters, has_rested)));
  if (first_left && !line.waiters.empty()) line.waiters.front()->parker.tell(kLook);
}

int TimeSlices::wait_in_line(uint64_t owner, const TimeLeft& left, Deadline deadline) {
  const auto waiter = std::make_shared<Waiter>();
  waiter->owner = owner;
  waiter->has_rested = left.has_rested;
  {
    auto line = line_.lock();
    line->seen.resize(slices_.size());
    const auto next = std::ranges::find_if(line->waiters, [](const auto& each) { return !each->has_rested; });
    line->waiters.insert(left.slices == 0 ? line->waiters.end() : next, waiter);
    ++line->stats.waits;
    changed(*line, false);
  }
  for (;;) {
    TimePoint until = deadline.when();
    {
      auto line = line_.lock();
      const auto at = std::ranges::find(line->waiters, waiter);
      if (at == line->waiters.end()) return waiter->place;
      const bool is_first = at == line->waiters.begin();
      const Taken taken = is_first ? take_idle(owner, line->seen) : Taken{};
      if (taken.place != kNone || deadline.expired(clock_)) {
        if (taken.counts != nullptr) ++(line->stats.*taken.counts);
        line->waiters.erase(at);
        changed(*line, is_first);
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
