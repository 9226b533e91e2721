// autocast.cpp: which operators torch.autocast("heddle") runs in the lower precision, which in f32, which in
// the widest of their arguments: PyTorch's own lists for accelerators. What is a weight by its place is cast
// once (weight_casts.h); PyTorch keeps the casts of leaves that require gradients, and until the block ends.
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/library.h>
#include <torch/version.h>

#include <algorithm>
#include <string_view>

#include "device.h"
#include "private_names.h"
#include "weight_casts.h"

namespace heddle::torch_backend {
namespace {

// The lists below name these.
using at::ArrayRef;
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
using at::DimnameList;
#endif
using at::IntArrayRef;
using at::Scalar;
using at::ScalarType;
using at::Tensor;
using at::TensorList;
using std::optional;

// Operators whose tensors after the first are weights.
constexpr std::string_view kWeighted[] = {"linear",      "conv1d",           "conv2d",
                                          "conv3d",      "conv_transpose1d", "conv_transpose2d",
                                          "convolution", "conv_transpose3d"};
constexpr bool has_weights(std::string_view op) {
  return std::ranges::find(kWeighted, op) != std::end(kWeighted);
}

bool is_kept(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kType && tensor.scalar_type() == at::kFloat &&
         !tensor.unsafeGetTensorImpl()->is_python_dispatch() && tensor.has_storage() &&
         !(at::GradMode::is_enabled() && tensor.requires_grad()) && !tensor._fw_grad(/*level=*/0).defined() &&
         at::autocast::is_autocast_cache_enabled();
}

Tensor weight_in(ScalarType type, const Tensor& weight) {
  return is_kept(weight) ? cast_once(weight, type) : at::autocast::cached_cast(type, weight, kType);
}
optional<Tensor> weight_in(ScalarType type, const optional<Tensor>& weight) {
  return weight ? optional(weight_in(type, *weight)) : std::nullopt;
}
template <class T>
T weight_in(ScalarType /*type*/, const T& other) {
  return other;
}

template <class Signature, Signature* op>
struct WithWeights;
template <class Made, class Input, class... Rest, Made (*op)(Input, Rest...)>
struct WithWeights<Made(Input, Rest...), op> {
  static Made call(Input input, Rest... rest) {
    const ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
    const ScalarType type = at::autocast::get_autocast_dtype(kType);
    return (*op)(at::autocast::cached_cast(type, input, kType), weight_in(type, rest)...);
  }
};

template <bool weighted, class Signature, Signature* op>
void lower(torch::Library& m, const char* name) {
  using at::autocast::CastPolicy;
  if constexpr (weighted) {
    m.impl(name, &WithWeights<Signature, op>::call);
  } else {
    m.impl(name, &at::autocast::WrapFunction<CastPolicy::lower_precision_fp, kType, Signature, Signature,
                                             op>::type::call);
  }
}

#define HEDDLE_LOWER1(op) lower<has_weights(#op), decltype(ATEN_FN(op)), &ATEN_FN(op)>(m, "aten::" #op);
#define HEDDLE_LOWER2(op, overload)                                                   \
  lower<has_weights(#op), decltype(ATEN_FN2(op, overload)), &ATEN_FN2(op, overload)>( \
      m, "aten::" #op "." #overload);
#define HEDDLE_PICK(_1, _2, picked, ...) picked
#define HEDDLE_LOWER(...) HEDDLE_PICK(__VA_ARGS__, HEDDLE_LOWER2, HEDDLE_LOWER1, )(__VA_ARGS__)
#define HEDDLE_F32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define HEDDLE_F32_BY_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define HEDDLE_WIDEST(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(HEDDLE_LOWER)
  AT_FORALL_FP32(HEDDLE_F32)
  AT_FORALL_FP32_SET_OPT_DTYPE(HEDDLE_F32_BY_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(HEDDLE_WIDEST)
}

}  // namespace
}  // namespace heddle::torch_backend
