// masks.cpp: masks -> indices, bounds of values, and what padding masks are asked.
#include "masks.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/nonzero.h>
#include <torch/library.h>

#include <cmath>

#include "bounds.h"

namespace heddle::torch_backend {
namespace {

bool is_mask(const std::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined() &&
         (tensor->scalar_type() == c10::ScalarType::Bool || tensor->scalar_type() == c10::ScalarType::Byte);
}

// A mask of n dimensions stands for n index tensors. Indices may also come from the CPU and as i32.
c10::List<std::optional<at::Tensor>> as_indices(const std::vector<std::optional<at::Tensor>>& given,
                                                const at::Tensor& self) {
  c10::List<std::optional<at::Tensor>> indices;
  int64_t axis = 0;
  for (const std::optional<at::Tensor>& each : given) {
    if (!each || !each->defined()) {
      indices.push_back(std::nullopt);
      ++axis;
    } else if (is_mask(each)) {
      for (int64_t i = 0; i < each->dim(); ++i) {
        TORCH_CHECK_INDEX(axis + i < self.dim() && each->size(i) == self.size(axis + i),
                          "The shape of the mask ", each->sizes(), " at index ", i,
                          " does not match the shape of the indexed tensor ", self.sizes(), " at index ",
                          axis + i);
      }
      for (const at::Tensor& index : at::nonzero(*each).to(self.device()).unbind(1)) indices.push_back(index);
      axis += each->dim();
    } else {
      indices.push_back(each->to(self.device(), c10::ScalarType::Long));
      ++axis;
    }
  }
  return indices;
}

// self, indices, then `rest` further arguments.
template <size_t rest>
void expand_masks(c10::Stack& stack) {
  c10::IValue& indices = torch::jit::peek(stack, 1, 2 + rest);
  const at::Tensor self = torch::jit::peek(stack, 0, 2 + rest).toTensor();
  indices = as_indices(indices.toOptionalTensorVector(), self);
}

// self, bins, min, max, then `rest` further arguments.
template <size_t rest>
void find_bounds(c10::Stack& stack) {
  const at::Tensor self = torch::jit::peek(stack, 0, 4 + rest).toTensor();
  c10::IValue& min = torch::jit::peek(stack, 2, 4 + rest);
  c10::IValue& max = torch::jit::peek(stack, 3, 4 + rest);
  if (self.is_complex()) return;  // refused by name
  double low = min.toScalar().to<double>();
  double high = max.toScalar().to<double>();
  if (c10::isIntegralType(self.scalar_type(), true)) {  // its bins lie between whole numbers
    min = low = std::trunc(low);
    max = high = std::trunc(high);
  }
  if (low == high) {
    if (self.numel() != 0) {
      const auto [least, greatest] = at::aminmax(self);
      low = least.item().to<double>();
      high = greatest.item().to<double>();
    }
    if (low == high) {
      low -= 1;
      high += 1;
    }
    min = low;
    max = high;
  }
  const std::string wrong = wrong_with_bounds(low, high);
  TORCH_CHECK(wrong.empty(), wrong);
}

// There are no nested tensors here: a TransformerEncoder that is told so keeps the padded ones.
bool is_left_aligned(const at::Tensor& /*tensor*/, const at::Tensor& /*mask*/) { return false; }

}  // namespace

void (*preparation_for(std::string_view overload))(c10::Stack&) {
  if (overload == "aten::index.Tensor") return &expand_masks<0>;
  if (overload == "aten::index.Tensor_out") return &expand_masks<1>;
  if (overload == "aten::index_put" || overload == "aten::index_put_") return &expand_masks<2>;
  if (overload == "aten::index_put.out") return &expand_masks<3>;
  if (overload == "aten::histc") return &find_bounds<0>;
  if (overload == "aten::histc.out") return &find_bounds<1>;
  return nullptr;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_nested_tensor_from_mask_left_aligned", is_left_aligned); }

}  // namespace heddle::torch_backend
