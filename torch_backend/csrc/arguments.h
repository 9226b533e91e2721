// arguments.h: what PyTorch's dispatcher hands over -> what an entry reads.
#pragma once

#include <ATen/core/Tensor.h>
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
// Bits of the arguments of schema type Scalar, optional or not.
uint64_t scalar_arguments(const c10::FunctionSchema& schema);

// f of each tensor in the value, with the value's structure.
template <class F>
c10::IValue mapped(const c10::IValue& value, F&& f) {
  if (value.isTensor()) return f(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& each : value.toTensorVector()) list.push_back(f(each));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& each : value.toOptionalTensorVector())
      list.push_back(each ? std::optional(f(*each)) : std::nullopt);
    return list;
  }
  return value;
}

}  // namespace heddle::torch_backend
