// cost_table.h: what a batch of so many rows costs, learnt from the runs.
//
//   What       record() takes the run time of one batch, estimate() tells what a batch would take,
//              best_rows() how large batches are worth making. Sizes are kept in classes, exactly to 8 rows,
//              then four to each doubling; a class follows the median of its last three runs, so that one
//              outlier changes nothing, and forgets older runs step by step.
//   Estimate   Between two sizes that ran: the line through them. Beyond: the line from the smallest to the
//              largest, though no row costs more there than it does on average at the largest.
//   Best       The largest number of rows whose rate is at most a quarter below the best rate of a smaller
//              size and that stays within the latency bound. Unknown sizes are tried. With a bound, one row
//              is tried first; beyond the known sizes, as many rows as keep the bound if no row costs more
//              there. A size is known after three runs, the latest within the last 512. Older measurements
//              are repeated: they may hold a compilation or a busy machine.
//   Joining    Where a row in a batch of the usual size, and what joining costs its caller, is no cheaper
//              than a row alone, best_rows() is 1 for the next 128 runs, then batches are measured anew; for
//              twice as many after each such verdict, up to 4096. Both have to be known: after 16 runs of
//              batches a caller should go alone.
//   Threads    One writer, as usual; the owner's lock.
//   Blocks     Never; allocates nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace heddle::batch {

class CostTable {
 public:
  void record(int64_t rows, Duration run);  // rows: 1 or more
  std::optional<Duration> estimate(int64_t rows) const;
  // Duration::max(): no bound. At least 1, at most max_rows.
  int64_t best_rows(int64_t max_rows, Duration latency_bound = Duration::max()) const;
  // False once a row of a batch is known to cost hardly less than a row alone: joining calls then only makes
  // them wait for each other.
  bool is_joining_worthwhile() const { return joining_; }
  // True while calls join, and what a row costs alone is not known: one should go alone.
  bool needs_row_alone() const { return joining_ && runs_ >= kRunsFirst && !is_known(sizes_[0]); }

 private:
  static constexpr uint64_t kRunsFirst = 16;
  static constexpr uint64_t kAloneRuns = 64, kAloneRunsMost = 4096;
  static constexpr size_t kClasses = 64;  // to 2^17 rows; the last holds everything above

  struct Size {
    double rows = 0;    // mean of the batches
    double ns_row = 0;  // of one row in them
    std::array<double, 2> before{};
    uint64_t runs = 0;
    uint64_t last_run = 0;

    double ns() const { return rows * ns_row; }
    void add(double rows_now, double ns_row_now);
  };
  struct Curve;

  static size_t class_of(int64_t rows);
  static int64_t least_rows(size_t size_class);
  bool is_known(const Size& size) const;
  bool weigh_joining();
  int64_t worthwhile_rows(int64_t max_rows) const;

  std::array<Size, kClasses> sizes_{};
  uint64_t runs_ = 0;
  bool joining_ = true;
  uint64_t weigh_at_ = 0;  // again, from this run on
  uint64_t alone_runs_ = kAloneRuns;
};

}  // namespace heddle::batch
