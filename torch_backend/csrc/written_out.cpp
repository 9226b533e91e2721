// written_out.cpp: out= forms for which PyTorch has kernels of its own devices, and no shapes: what other
// operators give, copied.
#include <ATen/core/Tensor.h>
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/adaptive_avg_pool3d.h>
#include <ATen/ops/arange.h>
#include <torch/library.h>

#include <cmath>

namespace heddle::torch_backend {
namespace {

// With its end.
template <class Number>
at::Tensor& range_of(Number start, Number end, Number step, at::Tensor& out) {
  TORCH_CHECK(step != 0, "step must be nonzero");
  TORCH_CHECK((step > 0 && end >= start) || (step < 0 && end <= start),
              "upper bound and lower bound inconsistent with step sign");
  const auto count = static_cast<int64_t>((end - start) / step + 1);
  // Of 16 bits in 32, as PyTorch's CPU.
  const bool is_short = c10::isReducedFloatingType(out.scalar_type());
  at::Tensor sequence = at::arange(count, is_short ? out.options().dtype(at::kFloat) : out.options());
  if (step != 1) sequence.mul_(step);
  if (start != 0) sequence.add_(start);
  if (out.numel() != count) out.resize_({count});
  return out.copy_(sequence.view(out.sizes()));
}

at::Tensor& range_out(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step,
                      at::Tensor& out) {
  if (!c10::isFloatingType(out.scalar_type()))
    return range_of(start.toLong(), end.toLong(), step.toLong(), out);
  const double first = start.toDouble(), last = end.toDouble();
  TORCH_CHECK(std::isfinite(first) && std::isfinite(last), "unsupported range: ", first, " -> ", last);
  return range_of(first, last, step.toDouble(), out);
}

template <at::Tensor (*pool)(const at::Tensor&, at::IntArrayRef)>
at::Tensor& pool_out(const at::Tensor& self, at::IntArrayRef sizes, at::Tensor& out) {
  TORCH_CHECK(out.scalar_type() == self.scalar_type() && out.device() == self.device(),
              "expected a tensor of ", self.scalar_type(), " on ", self.device(), " for the output, got ",
              out.scalar_type(), " on ", out.device());
  const at::Tensor result = pool(self, sizes);
  out.resize_(result.sizes());
  return out.copy_(result);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("range.out", range_out);
  m.impl("adaptive_avg_pool2d.out", pool_out<at::adaptive_avg_pool2d>);
  m.impl("adaptive_avg_pool3d.out", pool_out<at::adaptive_avg_pool3d>);
}

}  // namespace heddle::torch_backend
