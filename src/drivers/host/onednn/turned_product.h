// turned_product.h: y = x @ w + bias for some rows and an f32 weight [n, k] that is an input of the model.
//
//   What       The product is turned (turned_panels.h), so that the weight is read once, as it lies: oneDNN's
//              matmul would lay it out anew in each run, in up to two thirds of the time.
//   Use        Not where the engine has RowBits.
//   Threads    As step.h says. Panels are shared by the team.
#pragma once

#include "drivers/host/onednn/few_rows.h"
#include "drivers/host/onednn/turned_panels.h"

namespace heddle::host {

// f32; `problem.trans_w`. Null where oneDNN has no kernel of its own for it.
Result<std::unique_ptr<Step>> turned_product_step(const Engine& engine, const FewRows& problem, int width);

}  // namespace heddle::host
