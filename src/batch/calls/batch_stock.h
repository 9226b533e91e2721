// batch_stock.h: batches that are over, for the next rows of their kind.
//
//   What       lend() gives a batch to its callers; when the last of them lets go of it, it is emptied and
//              waits here, with its seats and its slot. take() gives it to others whose rows lie alike.
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
  explicit BatchStock(size_t kept);
  Ref<FormingBatch> lend(std::unique_ptr<FormingBatch> batch);
  // For so many rows; null: there is none.
  Ref<FormingBatch> take(const RowLayout& layout, std::span<const ir::Extents> row_extents, int64_t rows);
  void drop();
  bool keeps() const { return idle_.lock()->keeps; }  // since the last drop() some were lent

 private:
  using Batches = std::vector<std::unique_ptr<FormingBatch>>;
  struct Idle {
    Batches batches;  // the last to come back last
    bool keeps = false;
  };
  void put_back(std::unique_ptr<FormingBatch> batch);

  const size_t kept_;
  const uint32_t born_;  // fork_generation() of the maker
  mutable SpinGuarded<Idle, Rank::kPool> idle_;
};

}  // namespace heddle::batch
