// unique.h: unique elements and rows, found by the device.
//
//   What       Equals are brought beside each other, and the first ones are numbered and moved.
//   Used       Where the host cannot address the device's memory. Elsewhere PyTorch's CPU finds them where
//              they lie (cpu_operators.h).
//   Blocks     Until the device has counted them: only their number goes to the host.
//   Threads    Any.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include <string_view>

namespace heddle::torch_backend {

// Takes the operator's arguments from the stack and gives its results; null: not one of these operators.
void (*unique_on_device(std::string_view overload))(c10::Stack&);

}  // namespace heddle::torch_backend
