// grouped_product.h: each row times the matrix of its group, where groups are known when the step runs.
//
//   What       A group's matrix is read where it lies, and only if the group has rows: f16 and bf16 become
//              f32 a panel of columns after the other, as half_linear.h does it. Groups and panels are shared
//              by the team.
//   Invariant  Where the model is exact, a row's bits depend on the row and its matrix alone.
//   Threads    As step.h says.
#pragma once

#include "drivers/host/lowering.h"

namespace heddle::host {

Result<std::unique_ptr<Step>> lower_grouped_product(Lowering& lowering);

}  // namespace heddle::host
