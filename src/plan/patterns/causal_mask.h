// causal_mask.h: masks that let query i see keys 0 to i, made from shapes alone.
//
//   What       Exporters draw a triangle of ones as large as the sequence, and choose by it 0 or minus
//              infinity. Attention that knows it is causal needs no such mask, and computes half the scores.
//   Threads    Pure.
#pragma once

#include "plan/passes/rewrite.h"

namespace heddle::plan {

// What a mask adds where it hides a key: no score is great enough to matter beside it.
inline constexpr double kVanishes = -1e30;

// Elements are not zero where j <= i: true; where j > i: false; nothing is known: neither.
std::optional<bool> lower_triangle(const Rewriter& rw, ir::ValueId id);
// Adds 0 where j <= i, and kVanishes or less where j > i.
bool hides_later_keys(const Rewriter& rw, ir::ValueId id);

}  // namespace heddle::plan
