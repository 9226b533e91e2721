// circular_pad.cpp: borders that wrap around, put together of parts of the tensor.
//
// PyTorch's composition copies parts of its result before they are written, and over them later: the memory
// of a device under a checker is not read so.
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <torch/library.h>

#include <algorithm>

namespace heddle::torch_backend {
namespace {

using c10::SymInt;

// `before` and `after` are at least 0; where they are more than there is, it comes repeatedly.
at::Tensor wrapped(const at::Tensor& x, int64_t axis, SymInt before, SymInt after) {
  const SymInt size = x.sym_size(axis);
  TORCH_CHECK(size > 0 || (before == 0 && after == 0),
              "Padding value causes wrapping around more than once.");
  std::vector<at::Tensor> parts = {x};
  while (before > 0) {
    const SymInt taken = std::min(before, size);
    parts.insert(parts.begin(), x.narrow_symint(axis, size - taken, taken));
    before = before - taken;
  }
  while (after > 0) {
    const SymInt taken = std::min(after, size);
    parts.push_back(x.narrow_symint(axis, 0, taken));
    after = after - taken;
  }
  return parts.size() == 1 ? x : at::cat(parts, axis);
}

// `pads` has two numbers for each padded axis, the last axis first. Negative ones cut.
at::Tensor circular_pad(const at::Tensor& self, c10::SymIntArrayRef pads) {
  const int64_t rank = self.dim(), left = rank - static_cast<int64_t>(pads.size() / 2);
  TORCH_CHECK(left == 1 || left == 2, "Invalid padding size, expected 1 or 2 non-padded dimensions, ",
              "which would be equivalent to padding of length ", (rank - 1) * 2, " or ", (rank - 2) * 2,
              " respectively but got ", pads.size());
  const auto pads_of = [&](int64_t axis) {
    const auto first = static_cast<size_t>(2 * (rank - 1 - axis));
    return std::pair(pads[first], pads[first + 1]);
  };
  for (int64_t axis = left; axis < rank; ++axis) {
    const auto [before, after] = pads_of(axis);
    const SymInt size = self.sym_size(axis);
    TORCH_CHECK(before <= size && after <= size, "Padding value causes wrapping around more than once.");
    TORCH_CHECK(size + before + after >= 0, "Negative padding value is resulting in an empty dimension");
  }
  at::Tensor x = self;
  for (int64_t axis = left; axis < rank; ++axis) {
    const auto [before, after] = pads_of(axis);
    const SymInt begin = std::max(-before, SymInt(0));
    x = x.slice_symint(axis, begin, x.sym_size(axis) - std::max(-after, SymInt(0)));
    x = wrapped(x, axis, std::max(before, SymInt(0)), std::max(after, SymInt(0)));
  }
  // Never a view of the operand, and by rows on Meta as well, where cat() keeps another layout.
  return x.is_alias_of(self) ? x.clone(at::MemoryFormat::Contiguous) : x.contiguous();
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_pad_circular", circular_pad); }
// Its parts know their gradients.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("_pad_circular", circular_pad); }

}  // namespace heddle::torch_backend
