// described.h: what a call's results will be, by PyTorch's own shape functions.
#pragma once

#include <optional>
#include <vector>

#include "eager.h"

namespace heddle::torch_backend {

// Types and shapes of the results, as tensors of the device "meta"; nothing where PyTorch has no Meta kernel:
// then the graph's are taken. Raises what PyTorch refuses the call with.
std::optional<std::vector<at::Tensor>> described(const Overload& overload,
                                                 c10::ArrayRef<c10::IValue> arguments);

}  // namespace heddle::torch_backend
