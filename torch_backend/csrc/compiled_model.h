// compiled_model.h: a traced model as Python calls it: PyTorch's tensors in and out.
//
//   What       CPU tensors in: CPU tensors out, whatever the device, when they are ready. Tensors of device
//              "heddle" in: such tensors out.
//   Coalesce   Calls that meet are joined into batches by the model itself (heddle.h, ModelOptions); such a
//              call returns when its results are ready. A model that does not join gives its work on device
//              tensors to the caller's stream.
//   Threads    Any, with the GIL free while they wait and compute.
#pragma once

#include <ATen/core/Tensor.h>
#include <heddle/heddle.h>

namespace heddle::torch_backend {

// How a result lies: its axes from the outermost in memory to the innermost. None: by rows.
struct ResultOrder {
  std::vector<int64_t> axes;
  bool is_the_model_s = false;  // which gives the axes in this order; else the result is copied
};

class CompiledModel {
 public:
  CompiledModel(Model model, std::vector<ResultOrder> orders)
      : model_(std::move(model)), orders_(std::move(orders)), coalesces_(model_.coalescing_stats()) {}

  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& inputs) const;
  const Model& model() const { return model_; }

 private:
  std::vector<at::Tensor> answer(const std::vector<at::Tensor>& inputs) const;

  Model model_;
  std::vector<ResultOrder> orders_;  // of each result
  bool coalesces_;
};

}  // namespace heddle::torch_backend
