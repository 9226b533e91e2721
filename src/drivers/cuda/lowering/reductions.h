// reductions.h: a reduction over some axes of an operand, in either order of its bytes, to a row-major one.
#pragma once

#include <string_view>
#include <vector>

#include "drivers/cuda/kernels/reduce.h"
#include "drivers/cuda/lowering/lowering.h"

namespace heddle::cuda {

// `reduced`: by axis. `params` says what no elements give. Types of elements end the kernel's name.
Status launch_reduction(Lowering& l, std::string_view kernel, const std::vector<char>& reduced,
                        ReduceParams params);

}  // namespace heddle::cuda
