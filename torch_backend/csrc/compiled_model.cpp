#include "compiled_model.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "activities.h"
#include "layout.h"
#include "pinned.h"
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

at::Tensor lying(const at::Tensor& result, const ResultOrder& order) {
  if (order.axes.empty()) return result;
  if (order.is_the_model_s) {
    undo_order(result, order.axes);
    return result;
  }
  std::vector<int64_t> sizes;
  for (const int64_t axis : order.axes) sizes.push_back(result.size(axis));
  const at::Tensor made = at::empty(sizes, result.options());
  undo_order(made, order.axes);
  return made.copy_(result);
}

}  // namespace

std::vector<at::Tensor> CompiledModel::operator()(const std::vector<at::Tensor>& inputs) const {
  try {
    return answer(inputs);
  } catch (const Error& error) {
    note_lost_streams(error);
    throw;
  }
}

std::vector<at::Tensor> CompiledModel::answer(const std::vector<at::Tensor>& inputs) const {
  std::optional<c10::DeviceIndex> index;  // of device "heddle", where the inputs are on it
  for (const at::Tensor& input : inputs) {
    if (!input.is_cpu()) index = input.device().index();
  }
  std::vector<Tensor> given;
  given.reserve(inputs.size());
  for (const at::Tensor& input : inputs) {
    // Without an input on the device the call returns when it is over, and pinned memory has been read.
    std::optional<Tensor> pinned = index ? std::nullopt : pinned_view(input, CopySide::source);
    given.push_back(pinned ? *std::move(pinned) : to_heddle(input));
  }
  CallOptions options;
  if (index && !coalesces_) options.stream = current_stream_of(*index);
  options.keep_on_device = index.has_value() && !coalesces_;
  std::optional<Activity> activity;
  if (options.keep_on_device) activity.emplace("model", *index);
  const std::vector<Tensor> results = model_(given, options);
  activity.reset();
  std::vector<at::Tensor> made;
  made.reserve(results.size());
  for (const Tensor& result : results) {
    const ResultOrder& order = orders_[made.size()];
    made.push_back(lying(index ? to_torch(result, *index) : to_cpu(result), order));
  }
  return made;
}

}  // namespace heddle::torch_backend
