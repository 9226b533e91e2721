// conv.h: the lowerings of convolution's family that live in files of their own. All are for f32
// (float_steps.h brings the rest).
//
//   Threads    As lowering.h says.
#pragma once

#include "drivers/host/lowering.h"

namespace heddle::host {

Result<std::unique_ptr<Step>> lower_conv_transpose(Lowering& lowering);  // conv_transpose.cpp
Result<std::unique_ptr<Step>> lower_max_pool(Lowering& lowering);        // max_pool.cpp, the global one too
Result<std::unique_ptr<Step>> lower_average_pool(Lowering& lowering);  // average_pool.cpp, the global one too
Result<std::unique_ptr<Step>> lower_batch_normalization(Lowering& lowering);  // batch_normalization.cpp

}  // namespace heddle::host
