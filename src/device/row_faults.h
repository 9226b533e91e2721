// row_faults.h: which rows of a run are wrong in a way that only the data shows, and why.
//
//   What       One status per row of a run whose rows belong to several callers. A row keeps its first fault.
//              And one for the run as a whole: what an asynchronous device finds too late for submit().
//   Threads    Any: a driver may record from all threads that share a run, and anyone may ask meanwhile.
//              What was recorded before a submission is over is visible once a thread knows that it is over.
//   Blocks     Never but for the lock, held for one assignment. Without faults neither lock nor allocation.
//   Lifetime   Shared by the caller (which may leave before the end), the run, and the buffers it writes.
#pragma once

#include <cassert>
#include <cstdint>
#include <map>
#include <utility>

#include "base/first_failure.h"
#include "base/status.h"
#include "base/sync.h"

namespace heddle::device {

class RowFaults {
 public:
  explicit RowFaults(int64_t rows) : rows_(rows) {}  // 0: no caller asks for rows

  int64_t rows() const { return rows_; }

  // `fault` is not ok. True when it is the row's first, so that it was kept.
  bool record(int64_t row, Status fault) {
    assert(row >= 0 && row < rows_ && !fault.ok());
    const bool first = faults_.lock()->try_emplace(row, std::move(fault)).second;
    if (first) wrong_.add_release(1);
    return first;
  }

  void record_whole(Status fault) {
    assert(!fault.ok());
    whole_.record(std::move(fault));
  }

  Status of(int64_t row) const {
    if (!any()) return {};
    const auto faults = faults_.lock();
    const auto found = faults->find(row);
    return found == faults->end() ? Status() : found->second;
  }
  Status whole() const { return whole_.status(); }
  bool any() const { return count() != 0; }
  int64_t count() const { return wrong_.load_acquire(); }  // of rows that are wrong

 private:
  const int64_t rows_;
  Atomic<int64_t> wrong_{0};  // rows in `faults_`: added (release) after the row; 0 spares readers the lock
  Guarded<std::map<int64_t, Status>, Rank::kHelpers> faults_;
  FirstFailure whole_;
};

}  // namespace heddle::device
