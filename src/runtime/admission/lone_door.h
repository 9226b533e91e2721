// lone_door.h: how many lanes calls of one model may take without asking whoever joins its calls, and how
// many did.
//
//   States     open for so many lanes <-> shut. Who shuts it looks at the lanes' words next, and a call that
//              has a lane looks at the door again: both seq_cst (owner_words.h), so one sees the other.
//   Threads    Any. count(): one thread at a time for each lane, its owner, on a line of its own. sum() may
//              miss runs that end now.
//   Blocks     Never. count() allocates on a lane's first run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/atomic.h"

namespace heddle::runtime {

class LoneDoor {
 public:
  // Runs of more than `most` rows count as `most`.
  LoneDoor(int lanes, int64_t most) : most_(static_cast<size_t>(most)), lanes_(static_cast<size_t>(lanes)) {}
  LoneDoor(const LoneDoor&) = delete;
  LoneDoor& operator=(const LoneDoor&) = delete;
  ~LoneDoor() {
    for (Lane& lane : lanes_) delete[] lane.runs.load_relaxed();  // nobody else is here
  }

  void open(int lanes) {
    open_.store_seq_cst(lanes);
    seam::did("door.open", lanes);
  }
  void shut() {
    open_.store_seq_cst(0);
    seam::did("door.shut");
  }
  int is_open() const {  // for how many lanes
    const int lanes = open_.load_seq_cst();
    seam::did("door.look", lanes);
    return lanes;
  }

  void count(int lane, int64_t rows) {
    Atomic<Counts>& mine = lanes_[static_cast<size_t>(lane)].runs;
    if (mine.load_relaxed() == nullptr) mine.store_release(new Atomic<uint64_t>[most_ + 1]);
    Atomic<uint64_t>& runs = mine.load_relaxed()[std::min(static_cast<size_t>(rows), most_)];
    runs.store_relaxed(runs.load_relaxed() + 1);
  }
  // Adds the runs of n rows to by_rows[n], which has most + 1 elements; how many in all.
  uint64_t sum(std::vector<uint64_t>& by_rows) const {
    uint64_t all = 0;
    for (const Lane& lane : lanes_) {
      const Atomic<uint64_t>* runs = lane.runs.load_acquire();
      for (size_t rows = 0; runs != nullptr && rows <= most_; ++rows) {
        const uint64_t counted = runs[rows].load_relaxed();  // once: its owner may count meanwhile
        by_rows[rows] += counted;
        all += counted;
      }
    }
    return all;
  }

 private:
  using Counts = Atomic<uint64_t>*;
  struct alignas(64) Lane {
    Atomic<Counts> runs{nullptr};  // made by the lane's owner, kept to the end
  };
  Atomic<int> open_{0};
  const size_t most_;
  std::vector<Lane> lanes_;
};

}  // namespace heddle::runtime
