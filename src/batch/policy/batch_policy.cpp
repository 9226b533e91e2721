#include "batch/policy/batch_policy.h"

#include <algorithm>
#include <array>
#include <limits>

namespace heddle::batch {

namespace {

struct Entry {
  const Waiting* request;
  int64_t standing;  // its priority and the steps it gained by waiting
};

// What stands at the head of one group: some of its requests, and when they have to go.
struct Batch {
  std::span<const Entry> members;
  TimePoint oldest;
  TimePoint due;
};

// Durations and points beyond the clock's range stand for "never", so sums saturate.
TimePoint after(TimePoint start, Duration wait) {
  Duration::rep sum = 0;
  const bool never = __builtin_add_overflow(start.time_since_epoch().count(), wait.count(), &sum);
  return never ? TimePoint::max() : TimePoint(Duration(sum));
}

Duration waited(const Waiting& request, TimePoint now) {
  Duration::rep ns = 0;
  const bool ages_ago =
      __builtin_sub_overflow(now.time_since_epoch().count(), request.arrived.time_since_epoch().count(), &ns);
  return ages_ago ? Duration::max() : std::max(Duration(ns), Duration::zero());
}

int64_t standing(const Waiting& request, TimePoint now, Duration aging) {
  if (aging <= Duration::zero()) return request.priority;
  constexpr int64_t kMostSteps = std::numeric_limits<int64_t>::max() / 2;
  return request.priority + std::min<int64_t>(waited(request, now) / aging, kMostSteps);
}

// A quarter of the time to the deadline is left for the timer and the thread that react to it: at the
// deadline itself decide() can only expire the request.
TimePoint last_chance(const Waiting& request) {
  if (request.deadline == TimePoint::max()) return request.deadline;
  return after(request.deadline, -(waited(request, request.deadline) / 4));
}

bool goes_before(const Entry& a, const Entry& b) {
  if (a.standing != b.standing) return a.standing > b.standing;
  if (a.request->arrived != b.request->arrived) return a.request->arrived < b.request->arrived;
  return a.request->id < b.request->id;
}

bool is_before_by_group(const Entry& a, const Entry& b) {
  if (a.request->group != b.request->group) return a.request->group < b.request->group;
  return goes_before(a, b);
}

// What a batch holds so far.
class Load {
 public:
  Load(int64_t max_rows, const Limits& limits)
      : max_rows_(max_rows), max_cost_(limits.max_cost), is_padded_(limits.cost_kind == CostKind::padded) {}

  bool try_add(const Waiting& request) {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    const int64_t widest = std::max(widest_, request.cost);
    int64_t rows = 0;
    int64_t cost = 0;
    if (__builtin_add_overflow(rows_, request.rows, &rows)) rows = kMost;
    const bool overflow = is_padded_ ? __builtin_mul_overflow(rows, widest, &cost)
                                     : __builtin_add_overflow(cost_, request.cost, &cost);
    if (overflow) cost = kMost;
    const bool fits = rows <= max_rows_ && (max_cost_ <= 0 || (cost <= max_cost_ && !overflow));
    if (rows_ > 0 && !fits) return false;
    rows_ = rows;
    cost_ = cost;
    widest_ = widest;
    return true;
  }
  int64_t rows() const { return rows_; }
  bool full() const { return rows_ >= max_rows_ || (max_cost_ > 0 && cost_ >= max_cost_); }

 private:
  int64_t max_rows_;
  int64_t max_cost_;
  bool is_padded_;
  int64_t rows_ = 0;
  int64_t cost_ = 0;
  int64_t widest_ = 0;
};

class Moment {
 public:
  Moment(TimePoint now, const Running& running, const Limits& limits)
      : now_(now),
        running_(running),
        limits_(limits),
        max_rows_(rows_per_batch(running, limits)),
        someone_returns_(running.returning > 0 && now < running.returning_until) {}

  Decision choose(std::span<Entry> waiting) const {
    // The groups lie side by side, each in its order; one sort for both.
    if (waiting.size() > 1) std::sort(waiting.begin(), waiting.end(), is_before_by_group);
    Batch first_due;
    Batch first_aged;
    TimePoint next = TimePoint::max();
    for (std::span<const Entry> rest = waiting; !rest.empty();) {
      const uint64_t group = rest.front().request->group;
      size_t size = 1;
      while (size < rest.size() && rest[size].request->group == group) ++size;
      const Batch batch = form(rest.first(size));
      rest = rest.subspan(size);
      next = std::min(next, batch.due);
      if (batch.due <= now_) keep_highest(first_due, batch);
      if (has_aged(batch)) keep_highest(first_aged, batch);
    }
    if (first_due.members.empty()) return Wait{next};
    if (!first_aged.members.empty()) keep_highest(first_due, first_aged);
    Take take;
    take.ids.reserve(first_due.members.size());
    for (const Entry& entry : first_due.members) take.ids.push_back(entry.request->id);
    return take;
  }

 private:
  Batch form(std::span<const Entry> group) const {
    Load load(max_rows_, limits_);
    size_t count = 0;
    size_t preferred = 0;
    TimePoint oldest = TimePoint::max();
    TimePoint chance = TimePoint::max();
    for (; count < group.size(); ++count) {
      const Waiting& request = *group[count].request;
      if (!load.try_add(request)) break;
      if (is_preferred(load.rows())) preferred = count + 1;
      oldest = std::min(oldest, request.arrived);
      chance = std::min(chance, last_chance(request));
    }
    const bool full = load.full() || count < group.size();
    if (full) return {group.first(count), oldest, TimePoint::min()};
    if (preferred > 0) return {group.first(preferred), oldest, TimePoint::min()};
    return {group, oldest, std::min({patience(), after(oldest, limits_.max_wait), chance})};
  }

  bool is_preferred(int64_t rows) const {
    return std::binary_search(limits_.preferred_rows.begin(), limits_.preferred_rows.end(), rows);
  }

  // Until when it pays to let a batch grow, whatever its requests want.
  TimePoint patience() const {
    if (someone_returns_) return running_.returning_until;
    const bool may_grow = running_.busy > 0 && limits_.max_wait < Duration::max();
    return may_grow ? TimePoint::max() : TimePoint::min();
  }

  // Callers of one group may come back for ever, just in time to fill their next batch. A group that only
  // waits for callers to return is passed over for one step of aging, not for ever.
  bool has_aged(const Batch& batch) const {
    return someone_returns_ && limits_.aging > Duration::zero() && now_ >= after(batch.oldest, limits_.aging);
  }

  static void keep_highest(Batch& best, const Batch& other) {
    if (best.members.empty() || goes_before(other.members.front(), best.members.front())) best = other;
  }

  TimePoint now_;
  const Running& running_;
  const Limits& limits_;
  int64_t max_rows_;
  bool someone_returns_;
};

std::vector<RequestId> ids_past_deadline(TimePoint now, std::span<const Waiting> waiting) {
  std::vector<RequestId> ids;
  for (const Waiting& request : waiting) {
    if (request.deadline <= now) ids.push_back(request.id);
  }
  return ids;
}

}  // namespace

int64_t rows_per_batch(const Running& running, const Limits& limits) {
  const int64_t most = std::max<int64_t>(limits.max_rows, 1);
  if (running.active <= 0) return most;
  const int lanes = std::max(running.lanes, 1);
  const int64_t share = running.active / lanes + (running.active % lanes != 0 ? 1 : 0);
  return std::min(most, share);
}

Decision decide(TimePoint now, std::span<const Waiting> waiting, const Running& running,
                const Limits& limits) {
  TimePoint earliest = TimePoint::max();
  for (const Waiting& request : waiting) earliest = std::min(earliest, request.deadline);
  if (earliest <= now) return Expire{ids_past_deadline(now, waiting)};
  if (waiting.empty() || running.busy >= running.lanes) return Wait{earliest};

  std::array<Entry, 64> usual;  // no allocation for as many as wait in front of a model
  std::vector<Entry> many;
  std::span<Entry> entries(usual);
  if (waiting.size() > usual.size()) {
    many.resize(waiting.size());
    entries = many;
  }
  for (size_t i = 0; i < waiting.size(); ++i) {
    entries[i] = {&waiting[i], standing(waiting[i], now, limits.aging)};
  }
  return Moment(now, running, limits).choose(entries.first(waiting.size()));
}

}  // namespace heddle::batch
