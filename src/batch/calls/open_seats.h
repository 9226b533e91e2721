// open_seats.h: the seats of one forming batch that callers take without a lock.
//
//   What       One word says which batch is on show, what its rows look like, how many seats and rows of it
//              are taken, and how many more rows may be. A caller whose rows are of that kind takes a seat
//              by one compare-and-swap. The word is exact: a seat is in one batch, and no row of it is
//              another's.
//   Limits     Who takes the row with which the batch may have to go learns it, and asks the policy under the
//              lock. Until that is done others may join, up to the rows that the batch can have at most: they
//              would only wait for the same lock.
//   Kind       A number of sixteen bits made of the rows' extents (kind_of). Others may have the same: a
//              caller compares the extents themselves once it has its seat, and gives it up where they
//              differ.
//   Desk       Where the batch on show is found. It stays there until all its seats are written, so that a
//              caller with a seat can still find it when another batch is on show.
//   States     nothing on show -> on show (rows are left, or none) -> taken down, with what was taken.
//   Threads    claim(): any. The rest: one at a time (the coalescer's lock).
//   Lines      Each claim writes the cache line of both words, so nothing else lies there.
//   Ordering   What was done before show() is visible to who takes a seat; what was done before claim() is
//              not to others: a seat is written afterwards.
//   Source     An index and a count in one word, as in bounded queues with tickets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/atomic.h"
#include "ir/tensor.h"

namespace heddle::batch {

// Of rows with these extents. Equal rows have equal kinds, and other rows hardly ever the same.
uint16_t kind_of(std::span<const ir::Extents> row_extents, bool padded);

class alignas(64) OpenSeats {
 public:
  static constexpr int kRowBits = 14, kDeskBits = 6, kKindBits = 16;
  static constexpr int64_t kRowsMost = (int64_t{1} << kRowBits) - 1;  // of a batch that can be on show
  static constexpr size_t kDesks = size_t{1} << kDeskBits;

  struct Taken {
    size_t seats = 0;
    int64_t rows = 0;
  };
  struct Claim {
    size_t desk, seat;
    int64_t first;  // row
    bool asks;      // the first caller, or the one with which the batch may have to go
  };

  // Nothing: none of this kind is on show, or it has fewer rows left.
  std::optional<Claim> claim(uint16_t kind, int64_t rows);

  struct Limits {  // in rows, those before included
    int64_t ask_at = 0, most = 0;
  };
  void show(size_t desk, uint16_t kind, const Taken& before, const Limits& limits);
  // From now on, of the batch on show. What it has, `before` included: who made it reach `ask_at` before
  // that was said does not ask.
  Taken allow(const Limits& limits);
  Taken taken() const;
  Taken take_down();

 private:
  struct Word;
  // Callers change what is taken, all else the lock's holder; 0: nothing is on show.
  Atomic<uint64_t> word_{0};
  // Limits::ask_at. Its writer writes it and then reads the word, a caller changes the word and then reads
  // this, all four seq_cst: one of them learns that the number is reached.
  Atomic<int64_t> ask_at_{0};
};

}  // namespace heddle::batch
