// cpu_operators.cpp: the names, and one way to run them all.
#include "cpu_operators.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/op_registration/adaption.h>

#include <algorithm>
#include <deque>

#include "arguments.h"
#include "checks.h"
#include "eager.h"
#include "host_tensors.h"
#include "private_names.h"
#include "process_end.h"
#include "storage.h"
#include "unique.h"

namespace heddle::torch_backend {
namespace {

constexpr std::string_view kNames[] = {
    // factorisations and solvers, which are LAPACK's
    "_cholesky_solve_helper",
    "_linalg_det",
    "_linalg_eigh",
    "_linalg_eigvals",
    "_linalg_slogdet",
    "_linalg_solve_ex",
    "_linalg_svd",
    "cholesky",
    "cholesky_inverse",
    "geqrf",
    "linalg_cholesky_ex",
    "linalg_eig",
    "linalg_eigvals",
    "linalg_householder_product",
    "linalg_inv_ex",
    "linalg_ldl_factor_ex",
    "linalg_ldl_solve",
    "linalg_lstsq",
    "linalg_lu",
    "linalg_lu_factor_ex",
    "linalg_lu_solve",
    "linalg_matrix_exp",
    "linalg_matrix_sqrth",  // since PyTorch 2.14, as linalg_polar
    "linalg_polar",
    "linalg_qr",
    "linalg_solve_triangular",
    "lu_unpack",
    "ormqr",
    "triangular_solve",
    // Fourier transforms, and complex numbers made of real ones
    "_fft_c2c",
    "_fft_c2r",
    "_fft_r2c",
    "angle",
    "complex",
    "conj_physical",
    "polar",
    "unfold_backward",
    // sorting, counting and scans
    "_cummax_helper",
    "_cummin_helper",
    "_histogramdd_bin_edges",
    "_histogramdd_from_bin_cts",
    "_histogramdd_from_bin_tensors",
    "_logcumsumexp",
    "_unique",
    "_unique2",
    "bincount",
    "histogram",
    "mode",
    "mode.values",
    "segment_reduce",
    "unique_consecutive",
    "unique_dim",
    "unique_dim_consecutive",
    // layers and losses
    "_ctc_loss",
    "_embedding_bag",
    "_embedding_bag_forward_only",
    "_pdist_forward",
    "embedding_renorm",
    "fractional_max_pool2d",
    "fractional_max_pool3d",
    "max_unpool2d",
    "max_unpool3d",
    "multi_margin_loss",
    "multilabel_margin_loss_forward",
    "renorm",
    // special functions, bits of numbers and divisors of integers
    "digamma",
    "frexp",
    "gcd",
    "i0",
    "igamma",
    "igammac",
    "lcm",
    "lgamma",
    "mvlgamma",
    "nextafter",
    "polygamma",
    "special_airy_ai",
    "special_bessel_j0",
    "special_bessel_j1",
    "special_bessel_y0",
    "special_bessel_y1",
    "special_chebyshev_polynomial_t",
    "special_chebyshev_polynomial_u",
    "special_chebyshev_polynomial_v",
    "special_chebyshev_polynomial_w",
    "special_erfcx",
    "special_hermite_polynomial_h",
    "special_hermite_polynomial_he",
    "special_i0e",
    "special_i1",
    "special_i1e",
    "special_laguerre_polynomial_l",
    "special_legendre_polynomial_p",
    "special_log_ndtr",
    "special_modified_bessel_i0",
    "special_modified_bessel_i1",
    "special_modified_bessel_k0",
    "special_modified_bessel_k1",
    "special_ndtri",
    "special_scaled_modified_bessel_k0",
    "special_scaled_modified_bessel_k1",
    "special_shifted_chebyshev_polynomial_t",
    "special_shifted_chebyshev_polynomial_u",
    "special_shifted_chebyshev_polynomial_v",
    "special_shifted_chebyshev_polynomial_w",
    "special_spherical_bessel_j0",
    "special_zeta",
};

constexpr std::string_view kTorchvision[] = {
    "deform_conv2d", "nms", "ps_roi_align", "ps_roi_pool", "roi_align", "roi_pool",
};

constexpr std::string_view kComplexNames[] = {
    "_index_put_impl",
    "abs",
    "acos",
    "acosh",
    "add",
    "addbmm",
    "addcdiv",
    "addcmul",
    "addmm",
    "addmv",
    "addr",
    "all",
    "any",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "baddbmm",
    "bmm",
    "cat",
    "channel_shuffle",
    "col2im",
    "constant_pad_nd",
    "cos",
    "cosh",
    "count_nonzero",
    "cumprod",
    "cumsum",
    "diag_embed",
    "div",
    "dot",
    "eq",
    "exp",
    "exp2",
    "expm1",
    "eye",
    "fill",
    "flip",
    "gather",
    "im2col",
    "index",
    "index_add",
    "index_copy",
    "index_fill",
    "index_put",
    "index_select",
    "isinf",
    "isnan",
    "lerp",
    "linalg_cross",
    "linalg_vector_norm",
    "linspace",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logspace",
    "logsumexp",
    "masked_fill",
    "masked_scatter",
    "mean",
    "mm",
    "mul",
    "mv",
    "nan_to_num",
    "ne",
    "neg",
    "norm",
    "pixel_shuffle",
    "pixel_unshuffle",
    "pow",
    "prod",
    "put",
    "reciprocal",
    "reflection_pad1d",
    "reflection_pad2d",
    "reflection_pad3d",
    "repeat",
    "replication_pad1d",
    "replication_pad2d",
    "replication_pad3d",
    "roll",
    "rsqrt",
    "rsub",
    "scatter",
    "scatter_add",
    "sgn",
    "sigmoid",
    "silu",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "std",
    "std_mean",
    "sub",
    "sum",
    "take",
    "tan",
    "tanh",
    "trace",
    "tril",
    "triu",
    "var",
    "var_mean",
    "vdot",
    "where",
    "zero",
};

std::deque<CpuOperator>& cpu_operators() {
  static std::deque<CpuOperator>& all = *new std::deque<CpuOperator>;  // threads may outlive every static
  return all;
}

// The argument that a result of a mutable operator is.
const c10::IValue* same_as(const c10::Argument& result, const c10::FunctionSchema& schema,
                           c10::ArrayRef<c10::IValue> arguments) {
  if (!is_written(result)) return nullptr;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (is_written(argument) && argument.alias_info()->beforeSets() == result.alias_info()->beforeSets())
      return &arguments[i];
  }
  return nullptr;
}

// They write all of a tensor that is not named out, and read nothing of it.
constexpr std::string_view kOverwrite[] = {"aten::_cummax_helper", "aten::_cummin_helper", "aten::fill_",
                                           "aten::zero_"};

HostTensors::Use use_of(const c10::Argument& argument, const c10::FunctionSchema& schema) {
  if (!is_written(argument)) return HostTensors::Use::read;
  const bool is_result =
      argument.is_out() || std::ranges::find(kOverwrite, schema.name()) != std::end(kOverwrite);
  return is_result ? HostTensors::Use::written : HostTensors::Use::updated;
}

bool is_complex(c10::ArrayRef<c10::IValue> arguments) {
  return std::ranges::any_of(
      arguments, [](const c10::IValue& each) { return each.isTensor() && each.toTensor().is_complex(); });
}

void run_on_host(const c10::OperatorHandle& op, c10::Stack& stack, c10::Device device) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t count = schema.arguments().size();
  const std::vector<c10::IValue> arguments(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  torch::jit::drop(stack, count);
  HostTensors host(device);
  c10::Stack there;
  std::vector<std::pair<at::Tensor, at::Tensor>> targets;
  std::vector<at::Tensor> written_to;
  for (size_t i = 0; i < count; ++i) {
    if (!is_written(schema.arguments()[i])) continue;
    mapped(arguments[i], [&](const at::Tensor& tensor) { return written_to.emplace_back(tensor); });
  }
  const Writes writes(std::move(written_to));
  for (size_t i = 0; i < count; ++i) {
    const HostTensors::Use use = use_of(schema.arguments()[i], schema);
    there.push_back(mapped(arguments[i], [&](const at::Tensor& tensor) {
      at::Tensor seen = host.of(tensor, use);
      if (use != HostTensors::Use::read && !seen.is_same(tensor)) targets.emplace_back(seen, tensor);
      return seen;
    }));
  }
  host.fetch();
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &there);
  // What needs memory comes first: where there is none, no target has other values yet.
  for (size_t i = 0; i < there.size(); ++i) {
    const c10::IValue* const target = same_as(schema.returns()[i], schema, arguments);
    stack.push_back(target != nullptr ? *target : mapped(there[i], [&](const at::Tensor& result) {
      return host.give(result);
    }));
  }
  for (const auto& [seen, target] : targets) host.take_back_shape(seen, target);
  for (const auto& [seen, target] : targets) host.take_back(seen, target);
}

}  // namespace

void CpuOperator::operator()(const c10::OperatorHandle& op, c10::Stack& stack) {
  const FreeGil without_gil;
  const c10::FunctionSchema& schema = op.schema();
  const auto arguments = torch::jit::last(stack, schema.arguments().size());
  const c10::DeviceIndex index = device_of(arguments);
  check_devices(schema, arguments, c10::Device(kType, index));
  if (auto* const on_device = unique_on_device(name_);
      on_device != nullptr && !is_complex(arguments) &&
      !translated([&] { return device_at(index).unified_memory(); }))
    return on_device(stack);
  calls_.fetch_add(1, std::memory_order_relaxed);
  run_on_host(op, stack, c10::Device(kType, index));
}

std::span<const std::string_view> cpu_operator_names() { return kNames; }
std::span<const std::string_view> torchvision_names() { return kTorchvision; }

bool is_complex_on_cpu(std::string_view base_name) {
  return std::ranges::find(kComplexNames, base_name) != std::end(kComplexNames);
}

bool has_complex(const Overload& overload, c10::ArrayRef<c10::IValue> arguments) {
  if (overload.dtype_argument >= 0) {
    const c10::IValue& dtype = arguments[static_cast<size_t>(overload.dtype_argument)];
    if (!dtype.isNone() && c10::isComplexType(dtype.toScalarType())) return true;
  }
  return std::ranges::any_of(arguments, [](const c10::IValue& value) {
    if (value.isTensor()) return value.toTensor().defined() && value.toTensor().is_complex();
    if (value.isTensorList())
      return std::ranges::any_of(value.toListRef(),
                                 [](const auto& each) { return each.toTensor().is_complex(); });
    return value.isComplexDouble();
  });
}

void run_complex(const Overload& overload, c10::Stack& stack) {
  if (overload.on_complex != nullptr) return (*overload.on_complex)(overload.op, stack);
  constexpr c10::DispatchKey kCompositions[] = {c10::DispatchKey::CompositeImplicitAutograd,
                                                c10::DispatchKey::CompositeExplicitAutograd,
                                                c10::DispatchKey::CompositeExplicitAutogradNonFunctional};
  const auto* const made = std::ranges::find_if(
      kCompositions, [&](c10::DispatchKey key) { return overload.op.hasKernelForDispatchKey(key); });
  TORCH_CHECK_NOT_IMPLEMENTED(made != std::end(kCompositions), overload.op.schema().name(),
                              " is not computed with complex numbers on device heddle");
  overload.op.callBoxedForDispatchKey(*made, stack);
}

CpuOperator& add_cpu_operator(std::string name) { return cpu_operators().emplace_back(std::move(name)); }

std::vector<std::pair<std::string, uint64_t>> cpu_operator_calls() {
  std::vector<std::pair<std::string, uint64_t>> called;
  for (const CpuOperator& each : cpu_operators()) {
    if (each.calls() != 0) called.emplace_back(each.name(), each.calls());
  }
  std::ranges::sort(called);
  return called;
}

}  // namespace heddle::torch_backend
