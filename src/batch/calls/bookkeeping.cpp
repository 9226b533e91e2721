// bookkeeping.cpp: the numbers that the policy asks for: callers, lanes, and what runs have cost.
#include <algorithm>
#include <bit>
#include <utility>

#include "base/looking.h"
#include "batch/calls/coalescer.h"

namespace heddle::batch {

namespace {

constexpr size_t kGroupsKept = 32;
constexpr Duration kReturnMin = std::chrono::microseconds(50);
constexpr Duration kLongRun = std::chrono::microseconds(20);  // shorter ones cost less than choosing lanes
constexpr int kReturnShare = 2;  // callers are waited for at most half as long as the batch would run

}  // namespace

void Coalescer::come_in(State& state, size_t callers, int64_t rows) {
  state.inside += static_cast<int>(callers);
  state.inside_rows += rows;
  state.returning = std::max(0, state.returning - static_cast<int>(callers));
  state.returning_rows = state.returning == 0 ? 0 : std::max<int64_t>(0, state.returning_rows - rows);
}

void Coalescer::expire_returning(State& state, TimePoint now) {
  if (state.returning == 0 || now < state.returning_until) return;
  state.returning = 0;
  state.returning_rows = 0;
}

void Coalescer::after_run(State& state, std::span<const ir::Extents> row_extents, const Run& run,
                          int64_t rows, int callers, int64_t answered) const {
  ++state.stats.batches;
  ++state.stats.rows[std::min(static_cast<size_t>(rows), state.stats.rows.size() - 1)];
  if (run.cost > Duration(0) && !row_extents.empty()) learn(state, row_extents, run, rows, callers, answered);
  if (state.choice && state.inside > 1 && run.took >= kLongRun) {
    state.competed = run.end;
    state.choice->served(rows, run.end);
  }
  state.inside -= callers;
  state.inside_rows -= answered;
  --state.busy;
  seam::did("calls.end_run");
}

// Whose leader was interrupted, a short run seems long.
int Coalescer::crowd(State& state, Duration took) const {
  constexpr int kAllLong = 8;
  state.long_runs = took <= kLookPatience ? 0 : std::min(state.long_runs + 1, kAllLong);
  if (options_.look_on == 0 || state.long_runs == kAllLong) return 0;
  const auto callers = static_cast<unsigned>(std::max(state.inside + state.returning, 0));
  return static_cast<int>(std::bit_ceil(1 + callers / static_cast<unsigned>(options_.look_on)));
}

void Coalescer::learn(State& state, std::span<const ir::Extents> row_extents, const Run& run, int64_t rows,
                      int callers, int64_t answered) const {
  GroupCosts& group = costs(state, row_extents);
  // Alone on the device it may have had all of it, which says nothing about a lane.
  if (run.result.ok() && rows > 0 && lanes_busy(state) >= options_.lanes) {
    group.table.record(rows, options_.cost ? options_.cost(rows) : run.cost);
    group.rows_max = group.table.best_rows(options_.max_rows, options_.latency_bound);
  }
  const bool contended = state.inside + state.lone + state.returning > lanes(state);
  if (!contended || !group.table.is_joining_worthwhile() || !state.forecast.expect()) return;
  // Measured by the batch that it could become: a share of the last one, if that was small, would keep the
  // next one small.
  // With helpers, on fewer lanes, it takes less than a lane's costs say.
  const auto next = lanes(state) < options_.lanes
                        ? std::nullopt
                        : group.table.estimate(rows_per_batch(running(state), limits(state, row_extents)));
  const Duration patience = std::max(next.value_or(run.took) / kReturnShare, kReturnMin);
  state.returning += callers;
  state.returning_rows += answered;
  state.returning_until = std::max(state.returning_until, run.end + patience);
}

Coalescer::GroupCosts& Coalescer::costs(State& state, std::span<const ir::Extents> row_extents) const {
  const auto found = std::find_if(state.costs.begin(), state.costs.end(), [&](const GroupCosts& each) {
    return same_rows(each.row_extents, row_extents);
  });
  if (found != state.costs.end()) {
    std::rotate(found, found + 1, state.costs.end());
  } else {
    if (state.costs.size() == kGroupsKept) state.costs.erase(state.costs.begin());
    state.costs.push_back({{row_extents.begin(), row_extents.end()}, {}, options_.max_rows});
  }
  return state.costs.back();
}

bool Coalescer::joins(const State& state, int64_t rows, std::span<const ir::Extents> row_extents) {
  const auto found = std::find_if(state.costs.begin(), state.costs.end(), [&](const GroupCosts& each) {
    return same_rows(each.row_extents, row_extents);
  });
  if (found == state.costs.end()) return true;
  if (rows != 1 || !found->table.needs_row_alone()) return found->table.is_joining_worthwhile();
  return std::any_of(state.forming.begin(), state.forming.end(), [&](const Batch& batch) {
    return batch->alone && same_rows(batch->row_extents, row_extents);  // one at a time
  });
}

int Coalescer::lanes(const State& state) const {
  if (state.choice) return state.choice->lanes();
  const int64_t rows = state.inside_rows + state.returning_rows;
  if (rows <= options_.lanes) return options_.lanes;  // each has one
  if (rows <= 2 * options_.least_share) return 1;     // two lanes of few rows serve less
  const int64_t worthwhile = (rows + options_.least_share - 1) / options_.least_share;
  return static_cast<int>(std::min<int64_t>(worthwhile, options_.lanes));
}

Running Coalescer::running(State& state) const {
  Running running;
  running.lanes = lanes(state);
  running.busy = lanes_busy(state);
  running.active = static_cast<int>(state.inside_rows + state.lone + state.returning_rows);
  running.returning = state.returning;
  running.returning_until = state.returning_until;
  return running;
}

Limits Coalescer::limits(const State& state, std::span<const ir::Extents> row_extents) const {
  Limits limits;
  limits.max_rows = options_.max_rows;
  for (const GroupCosts& each : state.costs) {
    if (same_rows(each.row_extents, row_extents)) limits.max_rows = each.rows_max;
  }
  return limits;
}

Coalescer::Stats Coalescer::stats() const {
  auto state = state_.lock();
  count_in(*state);
  Stats stats = state->stats;
  const uint64_t lone = door_.sum(stats.rows);
  stats.calls += lone;
  stats.batches += lone;
  stats.lanes = state->choice ? state->choice->chosen() : lanes(*state);
  stats.rows_max = state->costs.empty() ? options_.max_rows : state->costs.back().rows_max;
  return stats;
}

bool Coalescer::anyone_waits() const {
  auto state = state_.lock();
  count_in(*state);
  return state->stats.parked != 0;
}

}  // namespace heddle::batch
