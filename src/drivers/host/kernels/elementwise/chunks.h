// chunks.h: when a step is worth splitting over the Team, and into how many pieces.
//
//   What       split() runs body(begin, end) over [0, count): inline when the work is small, else in pieces
//              whose borders are multiples of `grain`. Results must not depend on the pieces.
//   Threads    As Team::Caller::for_each. `body` also gets the piece's number, below kPiecesPerThread *
//              width, for its scratch.
#pragma once

#include <algorithm>
#include <cstdint>

#include "drivers/host/machine/team.h"

namespace heddle::host {

// Elements of simple work: about as long as waking a helper takes.
inline constexpr int64_t kWorthSplitting = 32768;
// So that a thread that starts late does not leave the other waiting.
inline constexpr int kPiecesPerThread = 2;

template <class Body>
void split(Team::Caller& caller, int64_t count, int64_t grain, int64_t work, int width, Body&& body) {
  const int64_t threads = work < kWorthSplitting ? 1 : std::min(caller.share(), width);
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t pieces = std::min<int64_t>(threads == 1 ? 1 : threads * kPiecesPerThread, grains);
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
