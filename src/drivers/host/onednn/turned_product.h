// turned_product.h: y = x @ w + bias for some rows and a weight [n, k] that is an input of the model.
//
//   What       oneDNN's matmul lays such a weight out anew in each run: up to two thirds of the time. Here
//              the product is turned, y' = w @ x': x is turned, which is small, and the weight is read once,
//              as it lies, a panel of its rows after the other. A panel of y' is turned back and gets its
//              bias.
//   Use        From above kMostFewRows to kMostTurnedRows rows, where oneDNN has brgemm. Not where the engine
//              has RowBits.
//   Invariant  Each element is summed along k in the order of brgemm's own product: the bits are the same.
//   Threads    As step.h says. Panels are shared by the team.
#pragma once

#include "drivers/host/onednn/few_rows.h"

namespace heddle::host {

inline constexpr int64_t kMostTurnedRows = 64;

// f32; `problem.trans_w`. Null where oneDNN has no kernel of its own for it.
Result<std::unique_ptr<Step>> turned_product_step(const Engine& engine, const FewRows& problem, int width);

// to[c * to_stride + r] = from[r * from_stride + c], + bias[r] if that is given.
void turn(const float* from, int64_t from_stride, int64_t rows, int64_t columns, const float* bias, float* to,
          int64_t to_stride);

}  // namespace heddle::host
