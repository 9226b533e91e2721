// batch_line.h: the batches that wait for a lane, oldest first.
//
//   What       All of them, and those among them that rows may join. Thousands of calls that go alone may be
//              in front of those, each in a batch of its own: who looks for a seat passes none of them.
//   Threads    One at a time: the owner's lock.
//   Blocks     Never.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "batch/calls/forming_batch.h"

namespace heddle::batch {

class BatchLine {
 public:
  using Batch = Ref<FormingBatch>;

  bool empty() const { return all_.empty(); }
  const Batch& front() const { return all_.front(); }
  const Batch& back() const { return all_.back(); }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }
  std::span<const Batch> joinable() const { return joinable_; }  // until the line changes

  void push(const Batch& batch) {
    all_.push_back(batch);
    if (!batch->alone) joinable_.push_back(batch);
  }
  // Which is in the line. Of the first one it takes no longer the longer the line is.
  Batch take(uint64_t id) {
    const auto found =
        std::find_if(all_.begin(), all_.end(), [&](const Batch& each) { return each->id == id; });
    Batch batch = std::move(*found);
    all_.erase(found);
    std::erase(joinable_, batch);
    return batch;
  }
  void remove(const Batch& batch) {
    std::erase(all_, batch);
    std::erase(joinable_, batch);
  }
  std::deque<Batch> take_all() {
    joinable_.clear();
    return std::exchange(all_, {});
  }

 private:
  std::deque<Batch> all_;
  std::vector<Batch> joinable_;
};

}  // namespace heddle::batch
