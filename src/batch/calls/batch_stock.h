// batch_stock.h: batches that are over, for the next rows of their kind.
//
//   What       lend() gives a batch to its callers; when the last of them lets go of it, it waits here, with
//              its seats and its slot. take() gives it to others whose rows lie alike.
//   Emptied    By a caller that waits (tidy()), else by take(): each member's words lie in another core's
//              caches, and the last to let go, whose next row others wait for, would lose 2 us. What holds
//              something of its callers', or a run that is not over, is emptied at once.
//   Bound      The last `kept` to come back, and none from drop() to the next lend(): nobody calls. One whose
//              slot is named by work that has not ended is freed.
//   Threads    Any.
//   Blocks     Never.
//   Lifetime   Batches that are out keep what they come back to.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/spin_guarded.h"
#include "batch/calls/forming_batch.h"

namespace heddle::batch {

class BatchStock : public std::enable_shared_from_this<BatchStock> {
 public:
  // `tidied`: by callers, from time to time. Else none waits to be emptied.
  BatchStock(size_t kept, bool tidied);
  Ref<FormingBatch> lend(std::unique_ptr<FormingBatch> batch);
  // For so many rows; null: there is none.
  Ref<FormingBatch> take(const RowLayout& layout, std::span<const ir::Extents> row_extents, int64_t rows);
  // Whether take() would find one now.
  bool has(const RowLayout& layout, std::span<const ir::Extents> row_extents, int64_t rows) const;
  void tidy();  // empties one that came back
  void drop();
  bool keeps() const { return idle_.lock()->keeps; }  // since the last drop() some were lent

 private:
  struct Entry {
    std::unique_ptr<FormingBatch> batch;
    bool is_used = false;  // as its callers left it
    bool is_for(const RowLayout& layout, std::span<const ir::Extents> row_extents, int64_t rows) const {
      return &batch->layout == &layout && batch->capacity >= rows &&
             same_rows(batch->row_extents, row_extents);
    }
  };
  struct Idle {
    std::vector<Entry> entries;  // the last to come back last
    bool keeps = false;
  };
  void put_back(std::unique_ptr<FormingBatch> batch);
  void keep(Entry entry);

  const size_t kept_;
  const bool tidied_;
  const uint32_t born_;  // fork_generation() of the maker
  mutable SpinGuarded<Idle, Rank::kPool> idle_;
  Atomic<int> used_{0};  // entries that are: a hint for tidy(), relaxed; written under the lock
};

}  // namespace heddle::batch
