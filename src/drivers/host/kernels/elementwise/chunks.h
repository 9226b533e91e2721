// chunks.h: when a step is worth splitting over the Team, and into how many pieces.
//
//   What       split() runs body(begin, end) over [0, count): inline when the work is small, else in pieces
//              whose borders are multiples of `grain`. Results must not depend on the pieces.
//   Threads    As Team::Caller::for_each. `body` also gets the piece's number, below kPiecesPerThread *
//              width, for its scratch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "drivers/host/machine/team.h"
#include "drivers/host/step.h"

namespace heddle::host {

// Elements of simple work: about as long as waking a helper takes.
inline constexpr int64_t kWorthSplitting = 32768;
// So that a thread that starts late does not leave the other waiting.
inline constexpr int kPiecesPerThread = 2;

inline int64_t pieces_of_split(int64_t count, int64_t grain, int64_t work, int64_t threads) {
  if (threads <= 1 || work < kWorthSplitting) return 1;
  return std::min<int64_t>(threads * kPiecesPerThread, (count + grain - 1) / grain);
}

// How split() divides for a caller that is alone. `what`: "rows" say.
inline Sharing sharing_of_split(int64_t count, int64_t grain, int64_t work, int width,
                                std::string_view what) {
  if (width == 1) return {};
  const int64_t pieces = pieces_of_split(count, grain, work, width);
  if (pieces <= 1) return Sharing::whole();
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t largest = (grains + pieces - 1) / pieces, rounds = (pieces + width - 1) / width;
  const double balance = static_cast<double>(grains) / static_cast<double>(largest * rounds * width);
  return Sharing::divided(pieces, std::min(balance, 1.0), text(pieces, " pieces of the ", what), width);
}

template <class Body>
void split(Team::Caller& caller, int64_t count, int64_t grain, int64_t work, int width, Body&& body) {
  const int64_t threads = work < kWorthSplitting ? 1 : std::min(caller.share(), width);
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t pieces = pieces_of_split(count, grain, work, threads);
  if (pieces <= 1) {
    if (count > 0) body(int64_t{0}, count, 0);
    return;
  }
  caller.for_each(static_cast<int>(pieces), [&](int piece) {
    const int64_t begin = grains * piece / pieces * grain;
    const int64_t end = std::min(count, grains * (piece + 1) / pieces * grain);
    body(begin, end, piece);
  });
}

}  // namespace heddle::host
