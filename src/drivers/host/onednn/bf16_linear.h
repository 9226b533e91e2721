// bf16_linear.h: y = x @ w + bias over x and a weight that a caller brings in bf16 (layout/half_operands.h).
//
//   What       Both are multiplied as they lie, by oneDNN or, few rows, by half_dots.h, added up in f32 and
//              written in f32: products of bf16 are exact in f32, so the values are those of a Cast of both
//              before the product, but for the order of the sums and for denormals, which the processor takes
//              for 0. Columns are shared by the team.
//   Use        Where Engine::multiplies_bf16(), and not where the engine has RowBits.
//   Threads    As step.h says.
#pragma once

#include "drivers/host/onednn/engine.h"
#include "drivers/host/onednn/few_rows.h"

namespace heddle::host {

// `problem.x` and `problem.w` are half; bias and y are f32.
Result<std::unique_ptr<Step>> bf16_linear_step(const Engine& engine, const FewRows& problem, int width);

}  // namespace heddle::host
