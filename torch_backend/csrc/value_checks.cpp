// value_checks.cpp: arguments that the Meta kernel does not look at, or whose value is no part of a key.
#include <ATen/MemoryOverlap.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/ops/promote_types.h>
#include <ATen/ops/result_type.h>

#include <algorithm>
#include <cmath>

#include "bounds.h"
#include "checks.h"
#include "since.h"
#include "storage.h"

namespace heddle::torch_backend {
namespace {

at::Scalar scalar_at(c10::ArrayRef<c10::IValue> arguments, size_t i) { return arguments[i].toScalar(); }
const at::Tensor& tensor_at(c10::ArrayRef<c10::IValue> arguments, size_t i) {
  return arguments[i].toTensor();
}
bool is_number(const at::Tensor& tensor) { return tensor.dim() == 0 && tensor.device().is_cpu(); }

// A number that PyTorch's CPU converts to `type`: RuntimeError where it does not fit. A tensor stands for the
// number in it only where reading it does not wait.
void check_fits(const c10::IValue& value, at::ScalarType type) {
  if (value.isNone() || (value.isTensor() && !is_number(value.toTensor()))) return;
  const at::Scalar number = value.isTensor() ? value.toTensor().item() : value.toScalar();
  switch (type) {
    case at::kByte:
      return static_cast<void>(number.to<uint8_t>());
    case at::kChar:
      return static_cast<void>(number.to<int8_t>());
    case at::kShort:
      return static_cast<void>(number.to<int16_t>());
    case at::kInt:
      return static_cast<void>(number.to<int32_t>());
    case at::kLong:
      return static_cast<void>(number.to<int64_t>());
    case at::kHalf:
      return static_cast<void>(number.to<at::Half>());
    case at::kBFloat16:
      return static_cast<void>(number.to<at::BFloat16>());
    case at::kFloat:
      return static_cast<void>(number.to<float>());
    default:
      return;  // holds every number
  }
}

at::ScalarType dtype_of(c10::ArrayRef<c10::IValue> arguments, size_t i) {
  return tensor_at(arguments, i).scalar_type();
}

// The arguments `numbers` become self's dtype.
template <size_t... numbers>
void check_fit_self(c10::ArrayRef<c10::IValue> arguments) {
  (check_fits(arguments[numbers], dtype_of(arguments, 0)), ...);
}

// The same, of operators that compute float16 and bfloat16 in float32.
template <size_t... numbers>
void check_fit_whole_self(c10::ArrayRef<c10::IValue> arguments) {
  if (c10::isIntegralType(dtype_of(arguments, 0), /*includeBool=*/false))
    check_fit_self<numbers...>(arguments);
}

// The dtype is an argument, or that of out=; without one it is the number's own, or self's.
template <size_t number, size_t dtype>
void check_fits_dtype(c10::ArrayRef<c10::IValue> arguments) {
  if (arguments[dtype].isTensor()) {
    check_fits(arguments[number], dtype_of(arguments, dtype));
  } else if (!arguments[dtype].isNone()) {
    check_fits(arguments[number], arguments[dtype].toScalarType());
  } else if (arguments[0].isTensor()) {
    check_fit_self<number>(arguments);
  }
}

// start, end, ..
template <size_t dtype>
void check_ends(c10::ArrayRef<c10::IValue> arguments) {
  check_fits_dtype<0, dtype>(arguments);
  check_fits_dtype<1, dtype>(arguments);
}

void check_threshold(c10::ArrayRef<c10::IValue> arguments) {  // self, threshold, value
  check_fit_whole_self<1>(arguments);
  check_fit_self<2>(arguments);
}

void check_bound(const c10::IValue& value, at::ScalarType type, Bound bound) {
  if constexpr (kBoundsMayLieOutside) {
    if (const auto range = range_of(to_heddle(type))) {
      const std::string wrong = wrong_with_bound(*range, bound, value.toScalar().toDouble());
      TORCH_CHECK(wrong.empty(), wrong);
      return;
    }
  }
  check_fits(value, type);
}

template <Bound... bounds>  // of the arguments after self
void check_bounds(c10::ArrayRef<c10::IValue> arguments) {
  at::ScalarType type = dtype_of(arguments, 0);
  const auto given = arguments.slice(1);
  for (const c10::IValue& each : given) {
    if (each.isScalar())
      type = at::promote_types(type, at::result_type(tensor_at(arguments, 0), each.toScalar()));
  }
  size_t i = 0;
  const auto check = [&](Bound bound) {
    const c10::IValue& each = given[i++];
    if (each.isScalar()) check_bound(each, type, bound);
  };
  (check(bounds), ...);
}

void check_limits(c10::ArrayRef<c10::IValue> arguments) {  // of hardtanh: self, min, max
  const at::ScalarType type = dtype_of(arguments, 0);
  if (c10::isIntegralType(type, /*includeBool=*/false)) {  // reals become whole numbers first
    check_fits(arguments[1], at::kLong);
    check_fits(arguments[2], at::kLong);
  }
  check_bound(arguments[1], type, Bound::least);
  check_bound(arguments[2], type, Bound::greatest);
}

void check_exponent(c10::ArrayRef<c10::IValue> arguments) {  // self, exponent
  const at::Tensor& self = tensor_at(arguments, 0);
  const at::Scalar exponent = scalar_at(arguments, 1);
  const bool whole =
      c10::isIntegralType(self.scalar_type(), /*includeBool=*/true) && exponent.isIntegral(true);
  TORCH_CHECK(!whole || exponent.toLong() >= 0, "Integers to negative integer powers are not allowed.");
  check_fits(arguments[1], at::result_type(self, exponent));
}

void check_factor(c10::ArrayRef<c10::IValue> arguments) {  // self, tensor1, tensor2, value
  const at::Tensor& first = tensor_at(arguments, 1);
  const at::ScalarType type = at::promote_types(at::result_type(first, tensor_at(arguments, 2)),
                                                at::result_type(tensor_at(arguments, 0), first));
  if (c10::isIntegralType(type, /*includeBool=*/false)) check_fits(arguments[3], type);
}

// self, other, alpha. PyTorch's CPU subtracts by adding -alpha.
template <bool negated = false>
void check_alpha(c10::ArrayRef<c10::IValue> arguments) {
  if (arguments[2].isInt() && arguments[2].toInt() == 1) return;
  const at::Tensor& self = tensor_at(arguments, 0);
  const at::ScalarType type = arguments[1].isTensor() ? at::result_type(self, tensor_at(arguments, 1))
                                                      : at::result_type(self, scalar_at(arguments, 1));
  const at::Scalar alpha = scalar_at(arguments, 2);
  at::native::alpha_check(type, alpha);
  check_fits(negated ? -alpha : alpha, type);
}

void check_subtraction(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  if (arguments[1].isTensor()) {
    at::native::sub_check(self, tensor_at(arguments, 1));
  } else {
    at::native::sub_check(self, scalar_at(arguments, 1));
  }
  check_alpha</*negated=*/true>(arguments);
}

void check_mask(c10::ArrayRef<c10::IValue> arguments) {  // self, mask
  const at::ScalarType type = tensor_at(arguments, 1).scalar_type();
  TORCH_CHECK(type == at::kBool, "only boolean masks are supported, but got a mask with dtype ", type);
}

void check_masked_scatter(c10::ArrayRef<c10::IValue> arguments) {  // self, mask
  const at::ScalarType type = tensor_at(arguments, 1).scalar_type();
  TORCH_CHECK(type == at::kBool, "masked_scatter_ only supports boolean masks, but got mask with dtype ",
              type);
}

void check_masked_fill(c10::ArrayRef<c10::IValue> arguments) {  // self, mask, value
  check_mask(arguments);
  check_fit_self<2>(arguments);
}

void check_celu(c10::ArrayRef<c10::IValue> arguments) {  // self, alpha
  TORCH_CHECK(scalar_at(arguments, 1).toDouble() != 0, "ZeroDivisionError: alpha cannot be 0 for CELU");
}

void check_softshrink(c10::ArrayRef<c10::IValue> arguments) {  // self, lambd
  const double bound = scalar_at(arguments, 1).toDouble();
  TORCH_CHECK(bound >= 0 && std::isfinite(bound), "lambda must be in range [0, infinity) for input dtype ",
              dtype_of(arguments, 0), ", but found ", bound);
}

// The Meta kernel looks at the channels first, and at some of these not at all. In the order and the words of
// PyTorch's devices.
void check_convolution(c10::ArrayRef<c10::IValue> arguments) {
  // input, weight, bias, stride, padding, dilation, transposed, output_padding, groups
  const auto least = [&](size_t i) {
    int64_t found = 1;
    for (const int64_t each : arguments[i].toIntList()) found = std::min(found, each);
    return found;
  };
  const at::Tensor& weight = tensor_at(arguments, 1);
  TORCH_CHECK(least(4) >= 0, "negative padding is not supported");
  TORCH_CHECK(least(7) >= 0, "negative output_padding is not supported");
  TORCH_CHECK(least(3) > 0, "non-positive stride is not supported");
  TORCH_CHECK(least(5) > 0, "dilation should be greater than zero");
  TORCH_CHECK(weight.dim() >= 3, "weight should have at least three dimensions");
  const int64_t groups = arguments[8].toInt();
  TORCH_CHECK(groups > 0, "non-positive groups is not supported");
  TORCH_CHECK(weight.size(0) >= groups, "Given groups=", groups, ", expected weight to be at least ", groups,
              " at dimension 0, but got weight of size ", weight.sizes(), " instead");
}

void check_embedding(c10::ArrayRef<c10::IValue> arguments) {  // weight
  TORCH_CHECK(tensor_at(arguments, 0).dim() == 2, "'weight' must be 2-D");
}

void check_boundaries(c10::ArrayRef<c10::IValue> arguments) {  // self, boundaries
  const int64_t rank = tensor_at(arguments, 1).dim();
  TORCH_CHECK(rank == 1, "boundaries tensor must be 1 dimension, but got dim(", rank, ")");
}

void check_extremes(c10::ArrayRef<c10::IValue> arguments) {  // self, dim, keepdim, and the outputs of out=
  const at::ScalarType type = tensor_at(arguments, 0).scalar_type();
  for (size_t i = 3; i < arguments.size(); ++i) {
    const at::ScalarType given = tensor_at(arguments, i).scalar_type();
    TORCH_CHECK(given == type, "Expected out tensor to have dtype ", tensor_at(arguments, 0).dtype(),
                ", but got ", tensor_at(arguments, i).dtype(), " instead");
  }
  if (kExtremesLieApart && arguments.size() == 5) {
    const at::MemOverlapStatus status =
        at::get_overlap_status(tensor_at(arguments, 3), tensor_at(arguments, 4));
    TORCH_CHECK_VALUE(status == at::MemOverlapStatus::No || status == at::MemOverlapStatus::TooHard,
                      "aminmax(): the `min` and `max` out= tensors must not overlap.");
  }
}

template <char first, char second, char third>  // the operator's name, for its words
void check_not_empty(c10::ArrayRef<c10::IValue> arguments) {
  TORCH_CHECK(tensor_at(arguments, 0).numel() > 0, first, second, third,
              "(): Expected reduction dim to be specified for input.numel() == 0. ",
              "Specify the reduction dim with the 'dim' argument.");
}

constexpr std::pair<std::string_view, Overload::Check> kChecks[] = {
    {"aten::add.Scalar", check_alpha<>},
    {"aten::add.Tensor", check_alpha<>},
    {"aten::addbmm", check_fit_whole_self<3, 4>},
    {"aten::addcdiv", check_factor},
    {"aten::addcmul", check_factor},
    {"aten::addmm", check_fit_whole_self<3, 4>},
    {"aten::addmv", check_fit_self<3, 4>},
    {"aten::addr", check_fit_self<3, 4>},
    {"aten::aminmax", check_extremes},
    {"aten::baddbmm", check_fit_whole_self<3, 4>},
    {"aten::bucketize.Scalar", check_boundaries},
    {"aten::bucketize.Tensor", check_boundaries},
    {"aten::celu", check_celu},
    {"aten::clamp", check_bounds<Bound::least, Bound::greatest>},
    {"aten::clamp_max", check_bounds<Bound::greatest>},
    {"aten::clamp_min", check_bounds<Bound::least>},
    {"aten::constant_pad_nd", check_fit_self<2>},
    {"aten::convolution", check_convolution},
    {"aten::convolution_overrideable", check_convolution},
    {"aten::embedding", check_embedding},
    {"aten::fill.Scalar", check_fit_self<1>},
    {"aten::full", check_fits_dtype<1, 2>},
    {"aten::full_like", check_fits_dtype<1, 2>},
    {"aten::hardshrink", check_fit_self<1>},
    {"aten::hardtanh", check_limits},
    {"aten::index_add", check_fit_self<4>},
    {"aten::index_fill.int_Scalar", check_fit_self<3>},
    {"aten::index_fill.int_Tensor", check_fit_self<3>},
    {"aten::linspace", check_ends<3>},
    {"aten::logspace", check_ends<4>},
    {"aten::masked_fill.Scalar", check_masked_fill},
    {"aten::masked_fill.Tensor", check_masked_fill},
    {"aten::masked_scatter", check_masked_scatter},
    {"aten::max", check_not_empty<'m', 'a', 'x'>},
    {"aten::min", check_not_empty<'m', 'i', 'n'>},
    {"aten::new_full", check_fits_dtype<2, 3>},
    {"aten::pow.Tensor_Scalar", check_exponent},
    {"aten::rsub.Scalar", check_subtraction},
    {"aten::rsub.Tensor", check_subtraction},
    {"aten::scalar_tensor", check_fits_dtype<0, 1>},
    {"aten::scatter.value", check_fit_self<3>},
    {"aten::scatter.value_reduce", check_fit_self<3>},
    {"aten::softshrink", check_softshrink},
    {"aten::sub.Scalar", check_subtraction},
    {"aten::sub.Tensor", check_subtraction},
    {"aten::threshold", check_threshold},
};

}  // namespace

Overload::Check value_check(std::string_view op) {
  const auto* const check =
      std::ranges::find(kChecks, op, &std::pair<std::string_view, Overload::Check>::first);
  return check == std::end(kChecks) ? nullptr : check->second;
}

}  // namespace heddle::torch_backend
