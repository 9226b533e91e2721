// values.cpp: operators whose result, or its shape, is known only after the values were read. They wait for
// the tensor and work on the host.
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/broadcast_tensors.h>
#include <ATen/ops/index.h>
#include <torch/library.h>

#include "storage.h"

namespace heddle::torch_backend {
namespace {

// A CPU tensor, which must not be written: on the same memory where the host can address it. Blocks until the
// values are there.
at::Tensor as_cpu(const at::Tensor& tensor) {
  return translated([&] {
    Tensor lent = to_heddle(tensor).to_host();
    auto* data = const_cast<void*>(lent.data());
    return at::from_blob(
        data, tensor.sizes(), lent.strides(), [lent](void*) {},
        at::TensorOptions().dtype(tensor.scalar_type()).device(at::kCPU));
  });
}

at::Scalar local_scalar_dense(const at::Tensor& self) { return as_cpu(self).item(); }

at::Tensor nonzero_of(const at::Tensor& self) {
  if (self.numel() == 0) return empty({0, self.dim()}, at::kLong, self.device().index());
  return as_cpu(self).nonzero().to(self.device());
}

at::Tensor& nonzero_out(const at::Tensor& self, at::Tensor& out) {
  const at::Tensor found = nonzero_of(self);
  at::native::resize_output(out, found.sizes());
  return out.copy_(found);
}

at::Tensor masked_select_of(const at::Tensor& self, const at::Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  const auto with_axis = [](const at::Tensor& each) { return each.dim() == 0 ? each.unsqueeze(0) : each; };
  const std::vector<at::Tensor> both = at::broadcast_tensors({with_axis(self), with_axis(mask)});
  return at::index(both[0], {both[1]});
}

at::Tensor& masked_select_out(const at::Tensor& self, const at::Tensor& mask, at::Tensor& out) {
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  at::assert_no_overlap(out, mask);
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "masked_select(): self and result must have the same scalar type");
  const at::Tensor found = masked_select_of(self, mask);
  at::native::resize_output(out, found.sizes());
  return out.copy_(found);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_local_scalar_dense", local_scalar_dense);
  m.impl("nonzero", nonzero_of);
  m.impl("nonzero.out", nonzero_out);
  m.impl("masked_select", masked_select_of);
  m.impl("masked_select.out", masked_select_out);
}

}  // namespace heddle::torch_backend
