// values.cpp: operators whose result, or its shape, is known only after the values were read. They wait for
// the tensor and work on the host, or wait for the size alone and work on the device.
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/broadcast_tensors.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index.h>
#include <ATen/ops/kaiser_window.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>

#include "device.h"
#include "storage.h"

namespace heddle::torch_backend {
namespace {

// A CPU tensor, which must not be written: on the same memory where the host can address it. Blocks until the
// values are there.
at::Tensor as_cpu(const at::Tensor& tensor) {
  if (tensor.is_conj()) return as_cpu(tensor.conj()).conj();
  if (tensor.is_complex()) return at::view_as_complex(as_cpu(at::view_as_real(tensor)));
  return translated([&] {
    Tensor lent = to_heddle(tensor).to_host();
    auto* data = const_cast<void*>(lent.data());
    return at::from_blob(
        data, tensor.sizes(), lent.strides(), [lent](void*) {},
        at::TensorOptions().dtype(tensor.scalar_type()).device(at::kCPU));
  });
}

at::Scalar local_scalar_dense(const at::Tensor& self) { return as_cpu(self).item(); }

// The nth element that is not zero writes its place to the nth row; the others write theirs to a row that
// goes. Only how many there are goes to the host.
at::Tensor nonzero_on_device(const at::Tensor& self) {
  const at::Tensor is_found = self.ne(0).flatten();
  const at::Tensor counts = is_found.cumsum(0, at::kLong);
  const auto found = as_cpu(counts.select(0, -1)).item<int64_t>();
  const at::Tensor rows = at::where(is_found, counts.sub(1), found);
  const at::Tensor all = at::arange(self.numel(), counts.options());
  at::Tensor left = at::zeros({found + 1}, counts.options()).scatter(0, rows, all).narrow(0, 0, found);
  std::vector<at::Tensor> places(static_cast<size_t>(self.dim()));
  for (int64_t axis = self.dim(); axis-- > 0;) {
    places[static_cast<size_t>(axis)] = left.remainder(self.size(axis));
    left = left.floor_divide(self.size(axis));
  }
  // PyTorch's kernels write axis after axis, and its callers see so in the result's strides.
  return places.empty() ? at::empty({found, 0}, counts.options()) : at::stack(places, 0).t();
}

// The host addresses the values where they lie.
bool lies_here(const at::Tensor& self) {
  return translated([&] { return device_at(self.device().index()).unified_memory(); });
}

at::Tensor nonzero_of(const at::Tensor& self) {
  if (self.numel() == 0) return empty({0, self.dim()}, at::kLong, self.device().index());
  if (!lies_here(self) && !self.is_complex()) return nonzero_on_device(self);
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

at::Tensor nonzero_static_of(const at::Tensor& self, int64_t size, int64_t fill_value) {
  TORCH_CHECK(size >= 0, "nonzero_static: 'size' must be an non-negative integer");
  const at::Tensor found = nonzero_of(self);
  at::Tensor padded = at::full({size, self.dim()}, fill_value, found.options());
  const int64_t kept = std::min(size, found.size(0));
  padded.narrow(0, 0, kept).copy_(found.narrow(0, 0, kept));
  return padded;
}

at::Tensor& nonzero_static_out(const at::Tensor& self, int64_t size, int64_t fill_value, at::Tensor& out) {
  const at::Tensor found = nonzero_static_of(self, size, fill_value);
  at::native::resize_output(out, found.sizes());
  return out.copy_(found);
}

// The place of each result is how many repeats have ended where it stands.
at::Tensor repeat_interleave(const at::Tensor& repeats, std::optional<int64_t> size) {
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  TORCH_CHECK(repeats.scalar_type() == at::kLong || repeats.scalar_type() == at::kInt,
              "repeats has to be Long or Int tensor");
  if (repeats.size(0) == 0) return at::empty_like(repeats);
  const at::Tensor ends = repeats.cumsum(0, at::kLong);
  if (!size || lies_here(repeats)) {  // a GPU is not waited for where the caller knows the size
    const at::Tensor read = as_cpu(at::stack({ends.select(0, -1), repeats.min().to(at::kLong)}));
    const auto* const both = read.const_data_ptr<int64_t>();
    TORCH_CHECK(both[1] >= 0, "repeats can not be negative");
    TORCH_CHECK(size.value_or(both[0]) == both[0], "allocated size does not match required size");
    size = both[0];
  }
  at::Tensor ended = at::empty({*size + 1}, repeats.options()).zero_();
  ended.scatter_add_(0, ends, at::ones_like(repeats));
  return ended.narrow(0, 0, *size).cumsum(0, repeats.scalar_type());
}

// PyTorch's compositions end in a kernel that only its own devices have. `given`: periodic and beta, if told.
template <class... Given>
at::Tensor kaiser_window(int64_t length, Given... given, std::optional<c10::ScalarType> type,
                         std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                         std::optional<bool> /*pinned*/) {
  const at::Tensor made =
      at::kaiser_window(length, given..., type, layout, c10::Device(c10::kCPU), /*pin_memory=*/false);
  return made.to(device.value_or(c10::Device(kType, current_device())));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_local_scalar_dense", local_scalar_dense);
  m.impl("kaiser_window", kaiser_window<>);
  m.impl("kaiser_window.periodic", kaiser_window<bool>);
  m.impl("kaiser_window.beta", kaiser_window<bool, double>);
  m.impl("nonzero", nonzero_of);
  m.impl("nonzero.out", nonzero_out);
  m.impl("nonzero_static", nonzero_static_of);
  m.impl("nonzero_static.out", nonzero_static_out);
  m.impl("repeat_interleave.Tensor", repeat_interleave);
  m.impl("masked_select", masked_select_of);
  m.impl("masked_select.out", masked_select_out);
}

}  // namespace heddle::torch_backend
