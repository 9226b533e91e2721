// few_rows.h: y = x @ w + bias for a few rows and a weight that is an input of the model.
//
//   What       oneDNN's matmul lays such a weight out anew in each run, which for a few rows costs more than
//              the product. Its sgemm reads the weight where it lies: a third of the time for one row, as
//              much for five. Columns are shared by the team.
//   Use        Not where the engine has RowBits.
//   Invariant  None between row counts: a row's bits may differ from those of the same row among many. An
//              input without a batch axis makes the model unbatchable, so results never depend on
//              neighbours.
//   Threads    As step.h says.
#pragma once

#include "drivers/host/lowering.h"

namespace heddle::host {

struct FewRows {
  int64_t m, k, n;
  bool trans_w;  // w is [n, k]
  Operand x, w, bias, y;
};

inline constexpr int64_t kMostFewRows = 4;

// f32.
std::unique_ptr<Step> few_rows_step(const FewRows& problem, int width);

}  // namespace heddle::host
