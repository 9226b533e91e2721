#include "batch/calls/batch_stock.h"

#include <algorithm>
#include <utility>

#include "base/fork.h"

namespace heddle::batch {

BatchStock::BatchStock(size_t kept) : kept_(kept), born_(fork_generation()) {
  idle_.lock()->batches.reserve(kept_ + 1);
}

Ref<FormingBatch> BatchStock::lend(std::unique_ptr<FormingBatch> batch) {
  idle_.lock()->keeps = true;
  return {batch.release(), [self = shared_from_this()](FormingBatch* back) {
            self->put_back(std::unique_ptr<FormingBatch>(back));
          }};
}

Ref<FormingBatch> BatchStock::take(const RowLayout& layout, std::span<const ir::Extents> row_extents,
                                   int64_t rows) {
  std::unique_ptr<FormingBatch> taken;
  {
    const auto idle = idle_.lock();
    const auto found = std::find_if(idle->batches.rbegin(), idle->batches.rend(), [&](const auto& each) {
      return &each->layout == &layout && each->capacity >= rows && same_rows(each->row_extents, row_extents);
    });
    if (found == idle->batches.rend()) return nullptr;
    taken = std::move(*found);
    idle->batches.erase(std::next(found).base());
  }
  return lend(std::move(taken));
}

void BatchStock::drop() {
  Batches dropped;  // freed after the lock
  dropped.reserve(kept_ + 1);
  const auto idle = idle_.lock();
  idle->keeps = false;
  idle->batches.swap(dropped);
}

void BatchStock::put_back(std::unique_ptr<FormingBatch> batch) {
  if (fork_generation() != born_) {
    static_cast<void>(batch.release());  // the parent's
    return;
  }
  if (!batch->slot->is_quiet()) return;
  batch->renew();
  std::unique_ptr<FormingBatch> oldest;  // freed after the lock, as the batch itself
  const auto idle = idle_.lock();
  if (!idle->keeps) return;
  idle->batches.push_back(std::move(batch));
  if (idle->batches.size() <= kept_) return;
  oldest = std::move(idle->batches.front());
  idle->batches.erase(idle->batches.begin());
}

}  // namespace heddle::batch
