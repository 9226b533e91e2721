// seen_weights.h: weights as they were when a model was built with them as constants.
//
//   What       A weight is still the one that was seen while it is the same tensor, with the same version,
//              storage and address, and no write was given to the device for that memory by whatever tensor
//              (`.data` has a version of its own in PyTorch).
//   Lifetime   A seen weight does not keep its tensor's memory, and no later tensor or storage is taken for
//              it. PyTorch swaps no tensors that others know of (torch.utils.swap_tensors refuses this one).
//   Threads    Any, holding the GIL.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/utils/pybind.h>

#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace heddle::torch_backend {

class SeenWeight {
 public:
  explicit SeenWeight(const at::Tensor& weight);
  bool is_still(const at::Tensor& weight) const;

 private:
  struct State {
    uint32_t version;
    const void* data;
    std::optional<uint64_t> writes;  // none in memory that is not this device's own
    bool operator==(const State&) const = default;
  };
  static State of(const at::Tensor& weight);

  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor_;
  c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
  State state_;
};

// Those of a model, by their place among its call's arguments.
class SeenWeights {
 public:
  explicit SeenWeights(const std::map<size_t, SeenWeight>& seen) : seen_(seen.begin(), seen.end()) {}
  bool are_still(const pybind11::tuple& arguments) const;
  size_t size() const { return seen_.size(); }

 private:
  std::vector<std::pair<size_t, SeenWeight>> seen_;
};

void bind_seen_weights(pybind11::module_& m);

}  // namespace heddle::torch_backend
