// convolution.h: checks that the operators of convolution's family share.
//
//   Threads    Pure functions; any thread.
#pragma once

#include <vector>

#include "ir/op.h"

namespace heddle::ir {

Result<std::vector<int64_t>> kernel_extents(const TensorType& w);  // after its first two axes; numbers only
Status check_groups(const Node& node, const TensorType& x, const TensorType& w);  // w is [M, C / group, ..]

}  // namespace heddle::ir
