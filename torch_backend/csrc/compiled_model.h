// compiled_model.h: a traced model as Python calls it: PyTorch's tensors in and out.
//
//   What       CPU tensors in: CPU tensors out, whatever the device, when they are ready. Tensors of device
//              "heddle" in: such tensors out, given to the caller's stream on devices that run behind.
//   Coalesce   Calls that meet are joined into batches by the model itself (heddle.h, ModelOptions).
//   Threads    Any, with the GIL free while they wait and compute.
#pragma once

#include <ATen/core/Tensor.h>
#include <heddle/heddle.h>

namespace heddle::torch_backend {

class CompiledModel {
 public:
  explicit CompiledModel(Model model) : model_(std::move(model)) {}

  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& inputs) const;
  const Model& model() const { return model_; }

 private:
  Model model_;
};

}  // namespace heddle::torch_backend
