// arguments.h: what PyTorch's dispatcher hands over -> what an entry reads.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <functional>

#include "call.h"

namespace heddle::torch_backend {

// Makes the graph's value of a tensor argument; `position` counts the tensors of the call from 0.
using TensorMaker = std::function<TensorArgument(const at::Tensor& tensor)>;

// Devices, layouts, memory formats and generators mean nothing to a graph: None. A type that no entry reads:
// NotImplementedError naming it.
Argument to_argument(const c10::IValue& value, const c10::Type& type, const TensorMaker& make);

// One schema argument type without the wrapping of optional.
const c10::Type& plain(const c10::Type& type);
bool is_scalar_argument(const c10::Argument& argument);  // schema type Scalar, optional or not

}  // namespace heddle::torch_backend
