// described.cpp: calls of PyTorch's Meta kernels.
#include "described.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>

#include "arguments.h"

namespace heddle::torch_backend {
namespace {

// What PyTorch's Meta kernel gets for the arguments. Where something is written to, strides count, and so
// does which input is a target as well: some kernels refuse such calls. A result is contiguous, whatever the
// strides of what it is made of.
class MetaArguments {
 public:
  explicit MetaArguments(Overload::Kind kind) : writes_(kind != Overload::Kind::functional) {}

  c10::IValue operator()(const c10::IValue& value) {
    if (value.isDevice()) return c10::Device(c10::kMeta);
    return mapped(value, [&](const at::Tensor& tensor) { return meta(tensor); });
  }

 private:
  at::Tensor meta(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.unsafeGetTensorImpl()->is_wrapped_number()) return tensor;
    const auto options = tensor.options().device(c10::kMeta);
    if (!writes_) return at::empty(tensor.sizes(), options);
    for (const auto& [seen, its] : made_) {
      if (at::get_overlap_status(seen, tensor) == at::MemOverlapStatus::Full)
        return seen.scalar_type() == tensor.scalar_type() ? its : its.view(tensor.scalar_type());
    }
    made_.emplace_back(tensor, at::empty_strided(tensor.sizes(), tensor.strides(), options));
    return made_.back().second;
  }

  const bool writes_;
  std::vector<std::pair<at::Tensor, at::Tensor>> made_;
};

// The operator whose Meta kernel tells the types: the convolution of devices like this one has none.
c10::OperatorHandle described_by(const Overload& overload) {
  if (overload.entry->op == "aten::convolution_overrideable")
    return c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  return overload.op;
}

// Without a Meta kernel, whatever the dispatcher says, or with one that tells other shapes than the CPU's
// kernels make. Their entries give the dtypes that are wanted.
constexpr std::string_view kOtherOnMeta[] = {"aten::native_batch_norm", "aten::_native_batch_norm_legit",
                                             "aten::_native_batch_norm_legit_no_training",
                                             "aten::_batch_norm_no_update", "aten::_thnn_fused_gru_cell"};

c10::Stack on_meta(const Overload& overload, c10::ArrayRef<c10::IValue> arguments) {
  c10::Stack stack;
  MetaArguments to_meta(overload.kind);
  for (const c10::IValue& each : arguments) stack.push_back(to_meta(each));
  return stack;
}

// Here stand the C++ shape functions of structured operators. For Meta, PyTorch prefers Python ones, which
// let some calls pass that its own devices refuse. out= overloads have none.
constexpr auto kStructured = c10::DispatchKey::CompositeExplicitAutogradNonFunctional;

}  // namespace

std::optional<std::vector<at::Tensor>> described(const Overload& overload,
                                                 c10::ArrayRef<c10::IValue> arguments) {
  const c10::OperatorHandle op = described_by(overload);
  if (std::ranges::find(kOtherOnMeta, overload.entry->op) != std::end(kOtherOnMeta)) return std::nullopt;
  if (!op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta)) return std::nullopt;
  const at::AutoDispatchBelowADInplaceOrView below;
  if (overload.kind == Overload::Kind::out) {
    const auto functional = c10::Dispatcher::singleton().findSchema(name_of(overload.entry->op));
    c10::Stack stack = on_meta(overload, arguments.slice(0, overload.arguments));
    if (functional->hasKernelForDispatchKey(kStructured))
      functional->callBoxedForDispatchKey(kStructured, stack);
  }
  c10::Stack stack = on_meta(overload, arguments);
  const c10::Stack kept = stack;  // before PyTorch 2.13 results may be references to the arguments
  if (op.hasKernelForDispatchKey(kStructured)) {
    op.callBoxedForDispatchKey(kStructured, stack);
  } else {
    op.callBoxed(stack);
  }
  std::vector<at::Tensor> results;
  for (const c10::IValue& each : stack) {
    if (each.isTensorList()) {
      for (const at::Tensor& element : each.toTensorVector()) results.push_back(element);
    } else {
      results.push_back(each.toTensor());
    }
  }
  return results;
}

}  // namespace heddle::torch_backend
