// layout.cpp: TensorIterator, asked for strides alone.
#include "layout.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>
#include <torch/version.h>

#include <algorithm>

#include "private_names.h"

namespace heddle::torch_backend {
namespace {

// They go through TensorIterator on the CPU, and PyTorch has not tagged them `pointwise`.
constexpr std::string_view kUntagged[] = {"aten::_prelu_kernel",  "aten::binary_cross_entropy",
                                          "aten::fill.Scalar",    "aten::fill.Tensor",
                                          "aten::floor_divide",   "aten::full_like",
                                          "aten::hardswish",      "aten::huber_loss",
                                          "aten::mse_loss",       "aten::native_dropout",
                                          "aten::ones_like",      "aten::rsub.Tensor",
                                          "aten::smooth_l1_loss", "aten::zero",
                                          "aten::zeros_like"};
// Tagged so, and the CPU's result lies by rows.
constexpr std::string_view kByRows[] = {"aten::masked_fill.Scalar", "aten::pow.Scalar"};

// As the CPU's result, on Meta.
class ResultOnMeta final : public at::TensorIteratorBase {
 public:
  explicit ResultOnMeta(c10::ArrayRef<const at::Tensor*> operands) {
    at::TensorIteratorConfig config;
    config.set_check_mem_overlap(false).check_all_same_dtype(false).check_all_same_device(false);
    config.declare_static_dtype_and_device(c10::ScalarType::Float, c10::Device(c10::kMeta));
    config.add_output(result);
    for (const at::Tensor* each : operands) config.add_const_input(*each);
    is_meta_ = true;  // there is no memory to look for
    build(config);
  }

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
  void set_output_raw_strided(int64_t output, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options, at::DimnameList names) override {
    make_result(sizes, strides, options);
    at::TensorIteratorBase::set_output_raw_strided(output, sizes, strides, options, names);
  }
#else
  void set_output_raw_strided(int64_t output, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options) override {
    make_result(sizes, strides, options);
    at::TensorIteratorBase::set_output_raw_strided(output, sizes, strides, options);
  }
#endif
  const at::Tensor& maybe_get_output(int64_t /*output*/) override { return result; }

  at::Tensor result;

 private:
  void make_result(at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options) {
    result = strides.empty() ? empty_meta(sizes, options) : empty_strided_meta(sizes, strides, options);
  }
};

std::optional<Axes> order_of(const at::Tensor& tensor) {
  if (!tensor.is_non_overlapping_and_dense()) return std::nullopt;
  Axes order = memory_order(tensor);
  return std::ranges::is_sorted(order) ? std::nullopt : std::optional(std::move(order));
}

using Operands = c10::SmallVector<const at::Tensor*, 4>;

bool have_one_shape(const Operands& operands) {
  return std::ranges::all_of(operands, [&](const at::Tensor* a) {
    return std::ranges::all_of(
        operands, [&](const at::Tensor* b) { return at::are_expandable(a->sizes(), b->sizes()); });
  });
}

}  // namespace

bool is_elementwise(const c10::OperatorHandle& op, std::string_view entry, Overload::Kind kind) {
  const auto is_among = [&](const auto& names) { return std::ranges::find(names, entry) != std::end(names); };
  if (kind != Overload::Kind::in_place && is_among(kByRows)) return false;
  return op.hasTag(at::Tag::pointwise) || is_among(kUntagged);
}

std::optional<Axes> order_of_result(const Overload& overload, c10::ArrayRef<c10::IValue> arguments,
                                    c10::ArrayRef<at::Tensor> targets) {
  Operands operands;
  for (const c10::IValue& each : arguments.slice(0, overload.arguments)) {
    if (each.isTensor() && each.toTensor().defined()) operands.push_back(&each.toTensor());
  }
  if (overload.kind == Overload::Kind::in_place) {
    const bool fit = std::ranges::all_of(operands, [&](const at::Tensor* each) {
      return at::is_expandable_to(each->sizes(), targets[0].sizes());
    });
    return fit ? order_of(targets[0]) : std::nullopt;
  }
  if (!have_one_shape(operands)) return std::nullopt;
  const at::Tensor result = ResultOnMeta(operands).result;
  if (targets.empty()) return order_of(result);
  if (targets[0].sizes() == result.sizes()) return order_of(targets[0]);
  return targets[0].numel() == 0 ? order_of(result) : std::nullopt;
}

at::Tensor in_order(const at::Tensor& tensor, c10::IntArrayRef order) {
  if (!tensor.defined() || tensor.dim() == 0 || tensor.dim() > static_cast<int64_t>(order.size()))
    return tensor;
  const int64_t lacking = static_cast<int64_t>(order.size()) - tensor.dim();
  Axes sizes, strides;
  for (const int64_t axis : order) {
    sizes.push_back(axis < lacking ? 1 : tensor.size(axis - lacking));
    strides.push_back(axis < lacking ? 1 : tensor.stride(axis - lacking));
  }
  auto view = make_tensor<c10::TensorImpl>(
      c10::Storage(tensor.storage()), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), tensor.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, tensor.storage_offset());
  return view;
}

void undo_order(const at::Tensor& result, c10::IntArrayRef order) {
  if (result.dim() != static_cast<int64_t>(order.size())) return;  // a loss is a sum of all
  Axes sizes(order.size()), strides(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const auto axis = static_cast<size_t>(order[i]);
    sizes[axis] = result.size(static_cast<int64_t>(i));
    strides[axis] = result.stride(static_cast<int64_t>(i));
  }
  result.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
}

}  // namespace heddle::torch_backend
