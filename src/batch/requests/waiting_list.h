// waiting_list.h: the requests that wait, in the order in which they came, by group and priority.
//
//   What       add() gives a request a cell and an id; remove() frees both. offer() lists what the policy
//              has to see: the first max_rows rows of every (group, priority), however many more wait behind
//              them, and everything whose deadline has passed.
//   Invariant  Ids grow with arrival and are never used twice; an id names its cell, so that nothing is
//              searched.
//   Threads    One at a time; the RequestQueue's lock guards it.
//   Blocks     Never. add() allocates when more wait than ever before.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "batch/policy/batch_policy.h"

namespace heddle::batch {

class WaitingList {
 public:
  static constexpr size_t kMost = size_t{1} << 20;        // cells that fit into an id
  static constexpr int64_t kRowsMost = int64_t{1} << 40;  // of a request: the sum of all fits into 63 bits

  struct Item {
    Waiting request;  // id 0: the cell is free
    void* payload = nullptr;
  };

  static Status takes(int64_t rows);  // invalid: no request may have as many
  size_t size() const { return size_; }
  int64_t rows() const { return rows_; }
  RequestId add(const Waiting& request, void* payload);
  const Item* find(RequestId id) const;  // null: it does not wait any more
  Item remove(RequestId id);             // it waits
  std::vector<void*> remove_all();
  TimePoint next_deadline() const {
    return deadlines_.empty() ? TimePoint::max() : deadlines_.begin()->first;
  }
  // Valid until the next call.
  std::span<const Waiting> offer(TimePoint now, int64_t max_rows);

 private:
  using Key = std::pair<uint64_t, int>;  // group, priority
  static constexpr uint32_t kNone = ~uint32_t{0};
  struct Line {
    uint32_t first = kNone, last = kNone;
  };
  using Lines = std::map<Key, Line>;
  struct Cell {
    Item item;
    uint32_t before = kNone, after = kNone;
    Lines::iterator line;
  };
  static constexpr size_t kEmptyLines = 64;  // kept, so that a lone group is not made again for each request
  static uint32_t cell_of(RequestId id) { return static_cast<uint32_t>(id % kMost); }
  uint32_t new_cell();
  void unlink(Cell& cell);

  std::vector<Cell> cells_;
  std::vector<uint32_t> free_;
  Lines lines_;
  std::set<std::pair<TimePoint, RequestId>> deadlines_;  // of those that have one
  std::vector<Waiting> offered_;
  size_t size_ = 0;
  int64_t rows_ = 0;
  uint64_t made_ = 0;
};

}  // namespace heddle::batch
