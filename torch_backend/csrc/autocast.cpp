// autocast.cpp: which operators torch.autocast("heddle") runs in the lower precision, which in f32, which in
// the widest of their arguments: PyTorch's own lists for accelerators.
#include <ATen/autocast_mode.h>
#include <torch/library.h>
#include <torch/version.h>

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

#define HEDDLE_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
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
