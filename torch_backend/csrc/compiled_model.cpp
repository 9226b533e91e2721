#include "compiled_model.h"

#include <ATen/ops/from_blob.h>

#include "storage.h"

namespace heddle::torch_backend {
namespace {

// On the result's own memory, which has no other holder, where the host can address it. Blocks until it is
// written.
at::Tensor to_cpu(const Tensor& result) {
  Tensor whole = result.to_host().contiguous();
  void* const data = whole.mutable_data();
  const Shape shape = whole.shape();
  const auto options = at::TensorOptions().dtype(to_torch(whole.dtype()));
  return at::from_blob(data, shape, [whole = std::move(whole)](void*) {}, options);
}

}  // namespace

std::vector<at::Tensor> CompiledModel::operator()(const std::vector<at::Tensor>& inputs) const {
  std::vector<Tensor> given;
  given.reserve(inputs.size());
  std::optional<c10::DeviceIndex> index;  // of device "heddle", where the inputs are on it
  for (const at::Tensor& input : inputs) {
    if (!input.is_cpu()) index = input.device().index();
    given.push_back(to_heddle(input));
  }
  CallOptions options;
  if (index && !coalesces_) options.stream = current_stream_of(*index);
  options.keep_on_device = index.has_value() && !coalesces_;
  const std::vector<Tensor> results = model_(given, options);
  std::vector<at::Tensor> made;
  made.reserve(results.size());
  for (const Tensor& result : results) made.push_back(index ? to_torch(result, *index) : to_cpu(result));
  return made;
}

}  // namespace heddle::torch_backend
