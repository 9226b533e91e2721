#include "batch/calls/open_seats.h"

#include <algorithm>
#include <cassert>

namespace heddle::batch {

// FNV-1a, folded.
uint16_t kind_of(std::span<const ir::Extents> row_extents, bool padded) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto mix = [&](uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
  mix(padded ? 1 : 0);
  for (const ir::Extents& extents : row_extents) {
    mix(extents.rank());
    for (const int64_t extent : extents) mix(static_cast<uint64_t>(extent));
  }
  return static_cast<uint16_t>(hash ^ hash >> 16 ^ hash >> 32 ^ hash >> 48);
}

// From the low bits on: rows, seats, rows left, desk, kind. A seat has a row at least.
struct OpenSeats::Word {
  static_assert(3 * kRowBits + kDeskBits + kKindBits == 64);
  static constexpr uint64_t kRows = (uint64_t{1} << kRowBits) - 1;

  uint64_t bits = 0;

  static Word of(size_t desk, uint16_t kind, const Taken& taken, int64_t left) {
    return {static_cast<uint64_t>(taken.rows) | static_cast<uint64_t>(taken.seats) << kRowBits |
            static_cast<uint64_t>(left) << (2 * kRowBits) | static_cast<uint64_t>(desk) << (3 * kRowBits) |
            static_cast<uint64_t>(kind) << (3 * kRowBits + kDeskBits)};
  }
  int64_t rows() const { return static_cast<int64_t>(bits & kRows); }
  size_t seats() const { return static_cast<size_t>(bits >> kRowBits & kRows); }
  int64_t left() const { return static_cast<int64_t>(bits >> (2 * kRowBits) & kRows); }
  size_t desk() const { return static_cast<size_t>(bits >> (3 * kRowBits) & (kDesks - 1)); }
  uint16_t kind() const { return static_cast<uint16_t>(bits >> (3 * kRowBits + kDeskBits)); }
};

std::optional<OpenSeats::Claim> OpenSeats::claim(uint16_t kind, int64_t rows) {
  assert(rows > 0);
  for (uint64_t seen = word_.load_acquire();;) {
    const Word now{seen};
    if (now.left() < rows || now.kind() != kind) return std::nullopt;
    const Taken more{now.seats() + 1, now.rows() + rows};
    const Word next = Word::of(now.desk(), kind, more, now.left() - rows);
    if (!word_.cas_strong_seq_cst(seen, next.bits)) continue;
    seam::did("seats.claim", static_cast<int64_t>(now.seats()));
    const int64_t ask_at = ask_at_.load_seq_cst();
    const bool asks = now.seats() == 0 || (now.rows() < ask_at && more.rows >= ask_at);
    seam::did("seats.look_at_number", asks);
    return Claim{now.desk(), now.seats(), now.rows(), asks};
  }
}

void OpenSeats::show(size_t desk, uint16_t kind, const Taken& before, const Limits& limits) {
  assert(desk < kDesks && limits.most <= kRowsMost);
  ask_at_.store_seq_cst(limits.ask_at);
  seam::did("seats.set_number", limits.ask_at);
  const int64_t left = std::max<int64_t>(0, limits.most - before.rows);
  word_.exchange_acq_rel(Word::of(desk, kind, before, left).bits);
  seam::did("seats.show", static_cast<int64_t>(before.seats));
}

OpenSeats::Taken OpenSeats::allow(const Limits& limits) {
  assert(limits.most <= kRowsMost);
  ask_at_.store_seq_cst(limits.ask_at);
  seam::did("seats.set_number", limits.ask_at);
  for (uint64_t seen = word_.load_seq_cst();;) {
    const Word now{seen};
    const Taken same{now.seats(), now.rows()};
    const int64_t left = std::max<int64_t>(0, limits.most - now.rows());
    const Word next = Word::of(now.desk(), now.kind(), same, left);
    // Who changed the word before us makes this fail, and who does so afterwards acquires it.
    if (next.bits != seen && !word_.cas_strong_acq_rel(seen, next.bits)) continue;
    seam::did("seats.allow", static_cast<int64_t>(same.seats));
    return same;
  }
}

OpenSeats::Taken OpenSeats::taken() const {
  const Word now{word_.load_relaxed()};  // of a seat nothing is to be seen before it is written
  return {now.seats(), now.rows()};
}

OpenSeats::Taken OpenSeats::take_down() {
  const Word last{word_.exchange_acq_rel(0)};
  seam::did("seats.take_down", static_cast<int64_t>(last.seats()));
  return {last.seats(), last.rows()};
}

}  // namespace heddle::batch
