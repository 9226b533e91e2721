#include "batch/policy/cost_table.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <span>

namespace heddle::batch {

namespace {

constexpr uint64_t kSettled = 3;
constexpr uint64_t kFresh = 512;
// A small run may find another processor idle for a moment and be helped, so that it seems cheaper than it is
// in a full house: less than this says nothing.
constexpr double kLeastRate = 0.75;
constexpr double kWeight = 1.0 / 8;
// What a caller pays for joining, parking and waking up, and how much dearer a row alone has to be besides.
constexpr double kHandOverNs = 10e3;
constexpr double kGain = 1.03;
constexpr uint64_t kSure = 8;  // batches of known sizes, before joining is given up

double median(double a, double b, double c) { return std::max(std::min(a, b), std::min(std::max(a, b), c)); }

Duration nanoseconds(double ns) {
  return ns >= static_cast<double>(Duration::max().count()) ? Duration::max()
                                                            : Duration(static_cast<int64_t>(ns));
}

}  // namespace

// Sizes and their times, ascending.
struct CostTable::Curve {
  std::array<const Size*, kClasses> points{};
  size_t count = 0;

  const Size& first() const { return *points[0]; }
  const Size& last() const { return *points[count - 1]; }

  double between(double rows) const {  // rows lie between first() and last()
    size_t above = 0;
    while (points[above]->rows < rows) ++above;
    const Size& high = *points[above];
    if (high.rows <= rows) return high.ns();
    const Size& low = *points[above - 1];
    return low.ns() + (high.ns() - low.ns()) * (rows - low.rows) / (high.rows - low.rows);
  }

  double at(double rows) const {
    if (rows >= first().rows && rows <= last().rows) return between(rows);
    const double run = last().rows - first().rows;
    const double slope = run > 0 ? (last().ns() - first().ns()) / run : last().ns_row;
    if (rows > last().rows) return last().ns() + std::clamp(slope, 0.0, last().ns_row) * (rows - last().rows);
    const double line = first().ns() - std::max(slope, 0.0) * (first().rows - rows);
    return std::max(line, first().ns_row * rows);
  }

  // What a bound is held against: what a batch may cost where nothing is known.
  double at_most(double rows) const {
    if (rows > last().rows) return last().ns_row * rows;
    return rows < first().rows ? first().ns() : between(rows);
  }
};

void CostTable::Size::add(double rows_now, double ns_row_now) {
  ++runs;
  if (runs == 1) {
    rows = rows_now;
    ns_row = ns_row_now;
  } else if (runs < kSettled) {
    ns_row = std::min(ns_row, ns_row_now);  // a first run may compile, or touch cold memory
  } else {
    const double middle = median(before[0], before[1], ns_row_now);
    ns_row = runs == kSettled ? middle : ns_row + kWeight * (middle - ns_row);
  }
  rows += kWeight * (rows_now - rows);
  before = {before[1], ns_row_now};
}

// Four classes to each doubling: 5, 6, 7, 8, then 9 to 10, 11 to 12, 13 to 14, 15 to 16, then 17 to 20.
size_t CostTable::class_of(int64_t rows) {
  const auto below = static_cast<uint64_t>(std::max<int64_t>(rows, 1)) - 1;
  if (below < 4) return static_cast<size_t>(below);
  const auto doubling = static_cast<size_t>(std::bit_width(below)) - 3;
  return std::min(4 * (doubling + 1) + static_cast<size_t>((below >> doubling) & 3), kClasses - 1);
}

int64_t CostTable::least_rows(size_t size_class) {
  if (size_class < 4) return static_cast<int64_t>(size_class) + 1;
  const size_t doubling = size_class / 4 - 1;
  return static_cast<int64_t>((4 + size_class % 4) << doubling) + 1;
}

void CostTable::record(int64_t rows, Duration run) {
  Size& size = sizes_[class_of(rows)];
  if (runs_ - size.last_run > kFresh) size = {};  // or the old runs would outvote each new one
  const auto count = static_cast<double>(std::max<int64_t>(rows, 1));
  size.add(count, static_cast<double>(std::max<int64_t>(run.count(), 1)) / count);
  size.last_run = ++runs_;
  joining_ = weigh_joining();
}

bool CostTable::is_known(const Size& size) const {
  return size.runs >= kSettled && runs_ - size.last_run <= kFresh;
}

std::optional<Duration> CostTable::estimate(int64_t rows) const {
  Curve curve;
  for (const Size& size : sizes_) {
    if (size.runs > 0) curve.points[curve.count++] = &size;
  }
  if (curve.count == 0) return std::nullopt;
  return nanoseconds(curve.at(static_cast<double>(std::max<int64_t>(rows, 1))));
}

// A size that is slower than a smaller one ends the range, unless a larger one makes up for it.
int64_t CostTable::worthwhile_rows(int64_t max_rows) const {
  double least = std::numeric_limits<double>::max();
  int64_t end = max_rows;
  for (size_t i = 0; i <= class_of(max_rows); ++i) {
    const Size& size = sizes_[i];
    if (!is_known(size)) continue;
    if (size.ns_row * kLeastRate <= least) {
      end = max_rows;
    } else if (end == max_rows) {
      end = least_rows(i) - 1;
    }
    least = std::min(least, size.ns_row);
  }
  return end;
}

bool CostTable::weigh_joining() {
  if (!joining_) {
    if (runs_ < weigh_at_) return false;
    std::fill(sizes_.begin() + 1, sizes_.end(), Size());  // first runs may have compiled: nothing is kept
    return true;
  }
  const Size& alone = sizes_[0];
  const Size* usual = nullptr;
  uint64_t batches = 0;
  for (const Size& size : std::span(sizes_).subspan(1)) {
    if (!is_known(size)) continue;
    batches += size.runs;
    if (usual == nullptr || size.runs > usual->runs) usual = &size;
  }
  if (batches < kSure || !is_known(alone)) return true;
  const bool worthwhile = alone.ns_row > usual->ns_row * kGain + kHandOverNs;
  alone_runs_ = worthwhile ? kAloneRuns : std::min(2 * alone_runs_, kAloneRunsMost);
  weigh_at_ = runs_ + alone_runs_;
  return worthwhile;
}

int64_t CostTable::best_rows(int64_t max_rows, Duration latency_bound) const {
  if (!joining_) return 1;
  const int64_t end = worthwhile_rows(std::max<int64_t>(max_rows, 1));
  if (latency_bound == Duration::max()) return end;
  Curve known;
  for (const Size& size : sizes_) {
    if (is_known(size)) known.points[known.count++] = &size;
  }
  if (known.count == 0) return 1;
  const auto bound = static_cast<double>(latency_bound.count());
  int64_t low = 1;
  int64_t high = end;
  while (low < high) {
    const int64_t middle = high - (high - low) / 2;
    if (known.at_most(static_cast<double>(middle)) <= bound) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace heddle::batch
