// checks.cpp: by TensorIterator's rules, for operators of every kind.
#include "checks.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/op_registration/adaption.h>

#include <algorithm>

#include "private_names.h"
#include "process_end.h"

namespace heddle::torch_backend {
namespace {

constexpr int kAny = -1;
struct TakesCpuScalars {
  std::string_view op;
  int argument = kAny;  // the only one that may be such a tensor
};

// The operators whose devices TensorIterator checks, with `device_check: NoCheck` in PyTorch's
// native_functions.yaml, and those whose own code takes such a tensor. test_refusals.py compares the list
// with that file. A call may have one of them; where() any number.
constexpr TakesCpuScalars kTakesCpuScalars[] = {
    {"aten::__lshift__.Tensor"},
    {"aten::__rshift__.Tensor"},
    {"aten::_index_put_impl", 2},
    {"aten::add.Tensor"},
    {"aten::addcdiv"},
    {"aten::addcmul"},
    {"aten::atan2"},
    {"aten::binary_cross_entropy"},
    {"aten::bitwise_and.Tensor"},
    {"aten::bitwise_left_shift.Tensor"},
    {"aten::bitwise_or.Tensor"},
    {"aten::bitwise_right_shift.Tensor"},
    {"aten::bitwise_xor.Tensor"},
    {"aten::clamp.Tensor"},
    {"aten::clamp_max.Tensor"},
    {"aten::clamp_min.Tensor"},
    {"aten::copysign.Tensor"},
    {"aten::div.Tensor"},
    {"aten::div.Tensor_mode"},
    {"aten::eq.Tensor"},
    {"aten::fill.Tensor", 1},
    {"aten::floor_divide"},
    {"aten::fmax"},
    {"aten::fmin"},
    {"aten::fmod.Tensor"},
    {"aten::ge.Tensor"},
    {"aten::gt.Tensor"},
    {"aten::heaviside"},
    {"aten::hypot"},
    {"aten::index_fill.int_Tensor", 3},
    {"aten::index_put", 2},
    {"aten::le.Tensor"},
    {"aten::lerp.Scalar"},
    {"aten::lerp.Tensor"},
    {"aten::logical_and"},
    {"aten::logical_or"},
    {"aten::logical_xor"},
    {"aten::lt.Tensor"},
    {"aten::masked_fill.Tensor", 2},
    {"aten::maximum"},
    {"aten::minimum"},
    {"aten::mse_loss"},
    {"aten::mul.Tensor"},
    {"aten::ne.Tensor"},
    {"aten::pow.Tensor_Tensor"},
    {"aten::remainder.Tensor"},
    {"aten::rsub.Tensor"},
    {"aten::smooth_l1_loss"},
    {"aten::special_xlog1py"},
    {"aten::sub.Tensor"},
    {"aten::where.self"},
    {"aten::xlogy.Tensor"},
};
constexpr std::string_view kTakesAnyNumber = "aten::where.self";

constexpr std::string_view kIdempotent[] = {"aten::fill.Scalar", "aten::fill.Tensor", "aten::threshold",
                                            "aten::zero"};

// Operators that may not share all elements of a target with an input either, from this argument on.
struct Apart {
  std::string_view op;
  size_t first;
};
constexpr Apart kApart[] = {
    {"aten::cat", 0},
    {"aten::gather", 0},
    {"aten::index.Tensor", 0},
    {"aten::index_add", 1},
    {"aten::index_copy", 1},
    {"aten::index_put", 1},
    {"aten::index_reduce", 1},
    {"aten::index_select", 0},
    {"aten::kthvalue", 0},
    {"aten::masked_fill.Scalar", 1},
    {"aten::masked_fill.Tensor", 1},
    {"aten::put", 1},
    {"aten::scatter.reduce", 1},
    {"aten::scatter.src", 1},
    {"aten::scatter.value", 1},
    {"aten::scatter.value_reduce", 1},
    {"aten::scatter_add", 1},
    {"aten::scatter_reduce.two", 1},
    {"aten::take", 0},
};

// Operators whose kernels on PyTorch's CPU raise IndexError where an index is outside; others RuntimeError.
constexpr std::string_view kIndexErrors[] = {"aten::embedding",
                                             "aten::index.Tensor",
                                             "aten::index_add",
                                             "aten::index_copy",
                                             "aten::index_fill.int_Scalar",
                                             "aten::index_fill.int_Tensor",
                                             "aten::index_put",
                                             "aten::index_reduce",
                                             "aten::index_select",
                                             "aten::nll_loss_forward",
                                             "aten::nll_loss2d_forward",
                                             "aten::put",
                                             "aten::take"};

// Calls f with every tensor there is and its argument's position.
template <class F>
void for_each_tensor(c10::ArrayRef<c10::IValue> arguments, F&& f) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = arguments[i];
    if (value.isTensor()) {
      if (value.toTensor().defined()) f(value.toTensor(), i);
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      for (const c10::IValue& each : value.toListRef())
        if (each.isTensor() && each.toTensor().defined()) f(each.toTensor(), i);
    }
  }
}

c10::DeviceIndex device_of(const c10::IValue& value) {
  if (value.isTensor() && value.toTensor().defined())
    return value.toTensor().device().type() == kType ? value.toTensor().device().index()
                                                     : c10::DeviceIndex{-1};
  if (value.isDevice()) return index_of(value.toDevice());
  if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const c10::IValue& each : value.toListRef()) {
      if (const c10::DeviceIndex index = device_of(each); index >= 0) return index;
    }
  }
  return -1;
}

}  // namespace

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

c10::DeviceIndex device_of(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& each : arguments) {
    if (const c10::DeviceIndex index = device_of(each); index >= 0) return index;
  }
  return current_device();
}

void add_checks(Overload& overload) {
  const std::string_view op = overload.entry->op;
  overload.check = value_check(op);
  overload.is_idempotent = std::ranges::find(kIdempotent, op) != std::end(kIdempotent);
  const auto* const apart = std::ranges::find(kApart, op, &Apart::op);
  if (apart != std::end(kApart)) overload.apart_from = apart->first;
  const auto* const scalars = std::ranges::find(kTakesCpuScalars, op, &TakesCpuScalars::op);
  if (scalars == std::end(kTakesCpuScalars)) return;
  const uint64_t inputs = (uint64_t{1} << overload.arguments) - 1;
  overload.cpu_scalars = scalars->argument == kAny ? inputs : uint64_t{1} << scalars->argument;
  if (overload.kind == Overload::Kind::in_place) overload.cpu_scalars &= ~uint64_t{1};
}

bool is_elsewhere(const Overload& overload, c10::ArrayRef<c10::IValue> arguments, c10::DeviceIndex index) {
  if (overload.device_argument >= 0) {
    const c10::IValue& given = arguments[static_cast<size_t>(overload.device_argument)];
    if (given.isDevice() && (given.toDevice().type() != kType || index_of(given.toDevice()) != index))
      return true;
  }
  if (overload.memory_format_argument >= 0) {
    const c10::IValue& format = arguments[static_cast<size_t>(overload.memory_format_argument)];
    if (!format.isNone() && format.toMemoryFormat() != c10::MemoryFormat::Preserve) return true;
  }
  if (overload.layout_argument < 0) return false;
  const c10::IValue& layout = arguments[static_cast<size_t>(overload.layout_argument)];
  return !layout.isNone() && layout.toLayout() != c10::kStrided;
}

void make_elsewhere(const c10::OperatorHandle& op, c10::Stack& stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd),
                              op.schema().name(),
                              " on device heddle makes strided tensors of the device of its arguments");
  op.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, stack);
}

void check_devices(const Overload& overload, c10::ArrayRef<c10::IValue> arguments, c10::Device device) {
  int numbers = 0;
  for_each_tensor(arguments, [&](const at::Tensor& tensor, size_t argument) {
    if (tensor.device() == device) return;
    const bool allowed =
        (overload.cpu_scalars >> argument & 1) != 0 || tensor.unsafeGetTensorImpl()->is_wrapped_number();
    if (!allowed || tensor.dim() != 0 || !tensor.device().is_cpu()) {
      common_device_check_failure(device, tensor, overload.op.schema().name().c_str(),
                                  overload.op.schema().arguments()[argument].name().c_str());
    }
    TORCH_CHECK(++numbers == 1 || overload.entry->op == kTakesAnyNumber,
                "Trying to pass too many CPU scalars to a kernel of device heddle");
  });
}

void check_devices(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments,
                   c10::Device device) {
  for_each_tensor(arguments, [&](const at::Tensor& tensor, size_t argument) {
    if (tensor.device() == device || (tensor.dim() == 0 && tensor.device().is_cpu())) return;
    common_device_check_failure(device, tensor, schema.name().c_str(),
                                schema.arguments()[argument].name().c_str());
  });
}

void check_overlap(const Overload& overload, c10::ArrayRef<at::Tensor> targets,
                   c10::ArrayRef<c10::IValue> arguments, std::string& key) {
  const size_t first = overload.kind == Overload::Kind::in_place ? 1 : 0;
  for (const at::Tensor& target : targets) {
    if (!overload.is_idempotent) at::assert_no_internal_overlap(target);
    for_each_tensor(arguments.slice(first, overload.arguments - first),
                    [&](const at::Tensor& input, size_t i) {
                      const at::MemOverlapStatus status = at::get_overlap_status(target, input);
                      if (status == at::MemOverlapStatus::Partial)
                        at::assert_no_partial_overlap(target, input);
                      if (first + i >= overload.apart_from) at::assert_no_overlap(target, input);
                      key.push_back(status == at::MemOverlapStatus::Full ? 'F' : '-');
                    });
  }
}

void check_resized(const Overload& overload, const at::Tensor& target, c10::ArrayRef<c10::IValue> arguments) {
  if (overload.apart_from >= overload.arguments) return;
  for_each_tensor(arguments.slice(overload.apart_from, overload.arguments - overload.apart_from),
                  [&](const at::Tensor& input, size_t) { at::assert_no_overlap(target, input); });
}

void raise_of_call(const Overload& overload, const Error& error) {
  const std::string_view message = error.what();
  if (error.code() == ErrorCode::invalid && message.find(" is outside [") != std::string_view::npos &&
      std::ranges::find(kIndexErrors, overload.entry->op) != std::end(kIndexErrors)) {
    stay_out_of_exit();
    TORCH_CHECK_INDEX(false, message_of(error));
  }
  raise_torch(error);
}

}  // namespace heddle::torch_backend
