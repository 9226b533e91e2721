// batch_policy.h: which waiting requests run next, and when. A pure function: no thread, lock or clock.
//
//   What       decide(now, what waits, what runs, limits) answers Expire, Take or Wait. The owner of
//              the queue asks again after each change, and at Wait::until at the latest.
//   Order      Higher priority first, then earlier arrival. A request gains one priority step per
//              Limits::aging of waiting, so no priority starves another. Within one group the order
//              stays: a batch ends at the first request that no longer fits.
//   Batch      Requests of one group, as many as the limits and the lane's share of the active callers
//              allow. The first always fits. A batch is full when it has that many rows, that much cost, or
//              when the next request does not fit. A full batch is due at once; another one is due
//                - at returning_until, or earlier when all are back, while callers are expected back,
//                - max_wait after its oldest request arrived, while other lanes run and max_wait is set,
//                - at once otherwise: with no caller expected back, a free lane waits for max_wait only;
//              never later than max_wait after its oldest request arrived, nor than three quarters of any of
//              its requests' time to the deadline: asked at the deadline itself, decide() only expires it.
//              Of several groups the due one whose first request stands highest goes. While callers are
//              expected back, a group that has waited Limits::aging goes with it: it is no longer passed over
//              by a due one that stands lower.
//   Threads    Pure.
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "base/clock.h"

namespace heddle::batch {

using RequestId = uint64_t;

// One request, or callers that already share a forming batch.
struct Waiting {
  RequestId id = 0;
  uint64_t group = 0;  // only equal groups can be joined: same dtypes, row shapes, length bucket
  int64_t rows = 1;    // 1 or more
  // Counted by Limits::max_cost, 0 or more: tokens or bytes of the request; padded: of its longest row.
  int64_t cost = 0;
  int priority = 0;
  TimePoint arrived;
  TimePoint deadline = TimePoint::max();  // expired, when not taken before
};

struct Running {
  int lanes = 1;  // batches that may run at once
  int busy = 0;   // that run now
  // Callers inside or expected back, one of several rows counted by its rows; 0: not known. A batch takes at
  // most its lane's share.
  int active = 0;
  int returning = 0;  // callers just answered in a batch of two or more and not yet back
  TimePoint returning_until = TimePoint::min();  // until when it pays to wait for them
};

enum class CostKind : uint8_t {
  sum,     // a batch costs what its requests cost together
  padded,  // its rows times the largest cost: the padded area
};

struct Limits {
  int64_t max_rows = 64;
  int64_t max_cost = 0;  // 0: not limited
  CostKind cost_kind = CostKind::sum;
  Duration max_wait = Duration::max();  // Duration::max(): not set; returning_until alone bounds a wait
  Duration aging = std::chrono::milliseconds(100);  // zero: priorities never age
  // Ascending. A batch that is not full is cut back to the largest of these that its first requests add up to
  // exactly, and is due at once when there is one.
  std::vector<int64_t> preferred_rows = {};
};

struct Wait {
  TimePoint until;  // max(): until something changes
};
struct Take {
  std::vector<RequestId> ids;  // of one group, in the order of their rows
};
struct Expire {  // as they stood in `waiting`
  std::vector<RequestId> ids;
};
using Decision = std::variant<Wait, Take, Expire>;

// `waiting` in any order; ids differ. With no lane free nothing is taken, but deadlines expire.
// Of each (group, priority) the first max_rows to arrive are enough: what is taken is the same as with all.
// The deadlines of the others are then the owner's to watch.
Decision decide(TimePoint now, std::span<const Waiting> waiting, const Running& running,
                const Limits& limits);

// How many rows one batch may take now: max_rows, or the lane's share of the active callers if that is less.
int64_t rows_per_batch(const Running& running, const Limits& limits);

}  // namespace heddle::batch
