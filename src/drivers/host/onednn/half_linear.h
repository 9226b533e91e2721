// half_linear.h: y = x @ w + bias over a weight that a caller brings in f16 or bf16 (layout/half_operands.h).
//
//   What       A panel of columns after the other becomes f32 in a scratch buffer that the core's cache
//              holds, and is multiplied there, turned (turned_panels.h) where that pays, or is summed at once
//              with a few rows (half_dots.h, half_panel.h): the weight is read from memory once, at half the
//              bytes of f32, and its f32 form is never whole. The values are those of a Cast before the
//              product.
//   Use        Not where the engine has RowBits.
//   Threads    As step.h says.
#pragma once

#include "drivers/host/onednn/engine.h"
#include "drivers/host/onednn/few_rows.h"

namespace heddle::host {

// `problem.w` is half; x, bias and y are f32.
Result<std::unique_ptr<Step>> half_linear_step(const Engine& engine, const FewRows& problem, int width);

}  // namespace heddle::host
