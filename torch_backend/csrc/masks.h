// masks.h: what has to be read before a graph can be made. index.Tensor and index_put take masks in place of
// indices; histc without bounds takes those of the values.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include <string_view>

namespace heddle::torch_backend {

// What has to be done to the arguments, the last ones on the stack, of this overload; null: nothing.
void (*preparation_for(std::string_view overload))(c10::Stack& arguments);

}  // namespace heddle::torch_backend
