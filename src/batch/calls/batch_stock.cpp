#include "batch/calls/batch_stock.h"

#include <algorithm>
#include <utility>

#include "base/fork.h"

namespace heddle::batch {

BatchStock::BatchStock(size_t kept, bool tidied) : kept_(kept), tidied_(tidied), born_(fork_generation()) {
  idle_.lock()->entries.reserve(kept_ + 1);
}

Ref<FormingBatch> BatchStock::lend(std::unique_ptr<FormingBatch> batch) {
  idle_.lock()->keeps = true;
  return {batch.release(), [self = shared_from_this()](FormingBatch* back) {
            self->put_back(std::unique_ptr<FormingBatch>(back));
          }};
}

Ref<FormingBatch> BatchStock::take(const RowLayout& layout, std::span<const ir::Extents> row_extents,
                                   int64_t rows) {
  Entry taken;
  {
    auto idle = idle_.lock();
    auto& entries = idle->entries;
    const auto last_that_is = [&](bool used) {
      return std::find_if(entries.rbegin(), entries.rend(), [&](const Entry& each) {
        return each.is_used == used && each.is_for(layout, row_extents, rows);
      });
    };
    auto found = last_that_is(false);
    if (found == entries.rend()) found = last_that_is(true);
    if (found == entries.rend()) return nullptr;
    taken = std::move(*found);
    entries.erase(std::next(found).base());
    if (taken.is_used) used_.sub_relaxed(1);
  }
  if (taken.is_used) taken.batch->renew();
  return lend(std::move(taken.batch));
}

bool BatchStock::has(const RowLayout& layout, std::span<const ir::Extents> row_extents, int64_t rows) const {
  const auto idle = idle_.lock();
  return std::ranges::any_of(idle->entries,
                             [&](const Entry& each) { return each.is_for(layout, row_extents, rows); });
}

void BatchStock::tidy() {
  if (used_.load_relaxed() == 0) return;
  Entry entry;
  {
    auto idle = idle_.try_lock();
    if (!idle.has_value()) return;
    auto& entries = (*idle)->entries;
    const auto found = std::ranges::find_if(entries, &Entry::is_used);
    if (found == entries.end()) return;
    entry = std::move(*found);
    entries.erase(found);
    used_.sub_relaxed(1);
  }
  entry.batch->renew();
  keep({std::move(entry.batch), false});
}

void BatchStock::drop() {
  std::vector<Entry> dropped;  // freed after the lock
  dropped.reserve(kept_ + 1);
  auto idle = idle_.lock();
  idle->keeps = false;
  idle->entries.swap(dropped);
  used_.store_relaxed(0);
}

void BatchStock::put_back(std::unique_ptr<FormingBatch> batch) {
  if (fork_generation() != born_) {
    static_cast<void>(batch.release());  // the parent's
    return;
  }
  if (!batch->slot->is_quiet()) return;
  // A run that nobody waited for keeps its model open, and an absent member what it was given.
  const bool holds_nothing = !batch->has_absents() && !batch->in_flight.has_value();
  const bool is_used = tidied_ && holds_nothing;
  if (!is_used) batch->renew();
  keep({std::move(batch), is_used});
}

void BatchStock::keep(Entry entry) {
  Entry oldest;  // freed after the lock, as the entry itself
  auto idle = idle_.lock();
  if (!idle->keeps) return;
  if (entry.is_used) used_.add_relaxed(1);
  auto& entries = idle->entries;
  entries.push_back(std::move(entry));
  if (entries.size() <= kept_) return;
  oldest = std::move(entries.front());
  if (oldest.is_used) used_.sub_relaxed(1);
  entries.erase(entries.begin());
}

}  // namespace heddle::batch
