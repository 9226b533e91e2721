// random.cpp: operators that draw. Numbers are made on the host into fresh memory of the device, then copied
// in stream order.
#include <ATen/MemoryOverlap.h>
#include <ATen/core/PhiloxRNGEngine.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/DistributionTemplates.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include <cmath>
#include <numbers>

#include "generator.h"
#include "storage.h"

namespace heddle::torch_backend {
namespace {

using Chosen = std::optional<at::Generator>;

at::Philox4_32 engine_for(const Chosen& chosen, c10::DeviceIndex index, int64_t numbers) {
  const at::Generator& generator = chosen && chosen->defined() ? *chosen : default_generator(index);
  TORCH_CHECK(generator.device().type() == kType, "a generator of device ", generator.device(),
              " was given to a tensor of device heddle; make one with torch.Generator(\"heddle\")");
  auto* own = static_cast<Generator*>(generator.unsafeGetGeneratorImpl());
  const Generator::Draw draw = own->take(current_stream_number(index), static_cast<uint64_t>(numbers));
  return at::Philox4_32(draw.seed, draw.sequence, draw.offset);
}

double unit(at::Philox4_32& engine) {  // [0, 1), 53 bits
  const uint64_t high = engine(), low = engine();
  return static_cast<double>(((high << 32) | low) >> 11) * 0x1.0p-53;
}

// Fills `self` with make(engine), `per_element` 32-bit numbers each, through a type that holds it.
template <class Make>
at::Tensor& fill(at::Tensor& self, const Chosen& chosen, int per_element, Make&& make) {
  if (self.numel() == 0) return self;
  using Held = decltype(make(std::declval<at::Philox4_32&>()));
  constexpr auto kHeld = std::is_same_v<Held, double> ? c10::ScalarType::Double : c10::ScalarType::Long;
  at::Philox4_32 engine = engine_for(chosen, self.device().index(), self.numel() * per_element);
  const at::Tensor values = at::empty(self.sizes(), at::TensorOptions().dtype(kHeld).device(at::kCPU));
  auto* data = static_cast<Held*>(values.mutable_data_ptr());
  for (int64_t i = 0; i < values.numel(); ++i) data[i] = make(engine);
  return self.copy_(values);
}

at::Tensor& uniform_(at::Tensor& self, double from, double to, Chosen chosen) {
  if (self.is_complex()) {
    at::Tensor halves = at::view_as_real(self);
    uniform_(halves, from, to, chosen);
    return self;
  }
  TORCH_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from,
              " > to=", to);
  const double top = std::nextafter(to, from);
  const bool narrow = self.scalar_type() != at::kDouble;  // rounding may reach `to`, which is outside
  const double step = self.scalar_type() == at::kHalf       ? 0x1.0p-11
                      : self.scalar_type() == at::kBFloat16 ? 0x1.0p-8
                                                            : 0x1.0p-24;
  return fill(self, chosen, 2, [&](at::Philox4_32& engine) {
    double x = unit(engine);
    if (narrow) x = std::floor(x / step) * step;
    return std::min(from + x * (to - from), top);
  });
}

double bell(at::Philox4_32& engine) {  // Box and Muller
  const double radius = std::sqrt(-2 * std::log1p(-unit(engine)));
  return radius * std::cos(2 * std::numbers::pi * unit(engine));
}

// What PyTorch's templates, which check the arguments, want of a device.
struct OfThisDevice {};
template <class>
struct Normal {
  void operator()(at::Tensor& self, double mean, double deviation, const Chosen& chosen) const {
    fill(self, chosen, 4, [&](at::Philox4_32& engine) { return mean + deviation * bell(engine); });
  }
};

at::Tensor& normal_(at::Tensor& self, double mean, double deviation, Chosen chosen) {
  return at::native::templates::normal_impl_<Normal, OfThisDevice>(self, mean, deviation, std::move(chosen));
}

template <class Mean, class Deviation>
at::Tensor normal(Mean mean, Deviation deviation, Chosen chosen) {
  return at::native::templates::normal_impl<Normal, OfThisDevice>(mean, deviation, std::move(chosen));
}

template <class Mean, class Deviation>
at::Tensor& normal_out(Mean mean, Deviation deviation, Chosen chosen, at::Tensor& out) {
  return at::native::templates::normal_out_impl<Normal, OfThisDevice>(out, mean, deviation,
                                                                      std::move(chosen));
}

at::Tensor& log_normal_(at::Tensor& self, double mean, double deviation, Chosen chosen) {
  TORCH_CHECK(deviation > 0, "log_normal_ expects std > 0.0, but found std=", deviation);
  return fill(self, chosen, 4,
              [&](at::Philox4_32& engine) { return std::exp(mean + deviation * bell(engine)); });
}

at::Tensor& cauchy_(at::Tensor& self, double median, double scale, Chosen chosen) {
  TORCH_CHECK(scale > 0, "cauchy_ expects sigma > 0.0, but found sigma=", scale);
  TORCH_CHECK(self.is_floating_point(),
              "Cauchy distribution is a continuous probability distribution. dtype must be a floating point "
              "but you specified ",
              self.dtype());
  return fill(self, chosen, 2, [&](at::Philox4_32& engine) {
    return median + scale * std::tan(std::numbers::pi * (unit(engine) - 0.5));
  });
}

at::Tensor& geometric_(at::Tensor& self, double p, Chosen chosen) {
  TORCH_CHECK(p > 0 && p < 1, "geometric_ expects p to be in (0, 1), but got p=", p);
  return fill(self, chosen, 2, [&](at::Philox4_32& engine) {
    return std::max(1.0, std::ceil(std::log1p(-unit(engine)) / std::log1p(-p)));
  });
}

// What is not positive is multiplied by a slope, which is drawn while training; `noise` gets the slopes.
at::Tensor rrelu(const at::Tensor& self, at::Tensor& noise, const at::Scalar& lower, const at::Scalar& upper,
                 bool training, Chosen chosen) {
  TORCH_CHECK(self.sizes() == noise.sizes(),
              "noise tensor shape must match self tensor shape. Got self.shape = ", self.sizes(),
              " noise.shape = ", noise.sizes());
  const double from = lower.toDouble(), to = upper.toDouble();
  TORCH_CHECK(from <= to, "Lower bound should be less than or equal to the upper bound");
  if (!training) return at::leaky_relu(self, (from + to) / 2);
  at::Tensor slopes = at::empty_like(self);
  uniform_(slopes, from, to, std::move(chosen));
  noise.copy_(at::where(self.le(0), slopes, at::ones_like(slopes)));
  return at::mul(self, noise);
}

at::Tensor& rrelu_(at::Tensor& self, at::Tensor& noise, const at::Scalar& lower, const at::Scalar& upper,
                   bool training, Chosen chosen) {
  return self.copy_(rrelu(self, noise, lower, upper, training, std::move(chosen)));
}

at::Tensor& exponential_(at::Tensor& self, double rate, Chosen chosen) {
  TORCH_CHECK(rate > 0, "exponential_ expects lambda > 0.0, but found lambda=", rate);
  return fill(self, chosen, 2, [&](at::Philox4_32& engine) { return -std::log1p(-unit(engine)) / rate; });
}

at::Tensor& bernoulli_(at::Tensor& self, double p, Chosen chosen) {
  TORCH_CHECK(p >= 0 && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  return fill(self, chosen, 2,
              [&](at::Philox4_32& engine) { return static_cast<int64_t>(unit(engine) < p); });
}

at::Tensor& bernoulli_of(at::Tensor& self, const at::Tensor& p, Chosen chosen) {
  const at::Tensor draws = at::empty(self.sizes(), self.options().dtype(at::kFloat));
  at::Tensor drawn = draws;
  uniform_(drawn, 0, 1, chosen);
  return self.copy_(drawn.lt(p.to(self.device(), at::kFloat)));
}

at::Tensor& bernoulli_out(const at::Tensor& p, Chosen chosen, at::Tensor& out) {
  if (out.sizes() == p.sizes()) at::assert_no_internal_overlap(out);  // else it gets memory of its own
  out.resize_(p.sizes());
  return bernoulli_of(out, p, std::move(chosen));
}

at::Tensor& whole(at::Tensor& self, int64_t from, uint64_t range, const Chosen& chosen) {
  return fill(self, chosen, 2, [&](at::Philox4_32& engine) {
    const uint64_t high = engine(), bits = (high << 32) | engine();
    return static_cast<int64_t>((range == 0 ? bits : bits % range) + static_cast<uint64_t>(from));
  });
}

int64_t largest(c10::ScalarType type) {  // up to which all whole numbers are exact
  switch (type) {
    case at::kFloat:
      return int64_t{1} << 24;
    case at::kDouble:
      return int64_t{1} << 53;
    case at::kHalf:
      return int64_t{1} << 11;
    case at::kBFloat16:
      return int64_t{1} << 8;
    case at::kBool:
      return 1;
    case at::kByte:
      return UINT8_MAX;
    case at::kChar:
      return INT8_MAX;
    case at::kShort:
      return INT16_MAX;
    case at::kInt:
      return INT32_MAX;
    default:
      return INT64_MAX;
  }
}

at::Tensor& random_(at::Tensor& self, Chosen chosen) {
  const auto range = static_cast<uint64_t>(largest(self.scalar_type()));
  return whole(self, 0, range + (range == INT64_MAX ? 0 : 1), chosen);
}
at::Tensor& random_from(at::Tensor& self, int64_t from, std::optional<int64_t> to, Chosen chosen) {
  const int64_t end = to.value_or(largest(self.scalar_type()));
  TORCH_CHECK(from < end, "random_ expects 'from' to be less than 'to', but got from=", from, " >= to=", end);
  return whole(self, from, static_cast<uint64_t>(end) - static_cast<uint64_t>(from), chosen);
}
at::Tensor& random_to(at::Tensor& self, int64_t to, Chosen chosen) {
  return random_from(self, 0, to, chosen);
}

at::Tensor& randperm_out(int64_t n, Chosen chosen, at::Tensor& out) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  at::Philox4_32 engine = engine_for(chosen, out.device().index(), 2 * n);
  const at::Tensor order = at::empty({n}, at::TensorOptions().dtype(at::kLong).device(at::kCPU));
  auto* data = static_cast<int64_t*>(order.mutable_data_ptr());
  for (int64_t i = 0; i < n; ++i) data[i] = i;
  for (int64_t i = n - 1; i > 0; --i)  // Fisher and Yates
    std::swap(data[i], data[static_cast<int64_t>(unit(engine) * static_cast<double>(i + 1))]);
  out.resize_({n});
  return out.copy_(order);
}

at::Tensor draw_kinds(const at::Tensor& self, int64_t samples, bool replacement, Chosen chosen) {
  TORCH_CHECK(self.is_floating_point(),
              "multinomial only supports floating-point dtypes for input, got: ", self.scalar_type());
  const at::Tensor weights = self.to(at::kCPU).to(at::kDouble).contiguous();  // Metal has no f64
  TORCH_CHECK(weights.dim() == 1 || weights.dim() == 2, "prob_dist must be 1 or 2 dim");
  const int64_t rows = weights.dim() == 2 ? weights.size(0) : 1, kinds = weights.size(-1);
  TORCH_CHECK(samples > 0, "cannot sample n_sample <= 0 samples");
  TORCH_CHECK(replacement || samples <= kinds,
              "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  at::Philox4_32 engine = engine_for(chosen, self.device().index(), 2 * rows * samples);
  const at::Tensor drawn = at::empty({rows, samples}, at::TensorOptions().dtype(at::kLong).device(at::kCPU));
  auto* out = static_cast<int64_t*>(drawn.mutable_data_ptr());
  for (int64_t row = 0; row < rows; ++row) {
    const double* given = static_cast<const double*>(weights.const_data_ptr()) + row * kinds;
    std::vector<double> left(given, given + kinds);
    for (int64_t i = 0; i < samples; ++i) {
      double sum = 0;
      for (const double each : left) {
        TORCH_CHECK(each >= 0 && std::isfinite(each),
                    "invalid multinomial distribution: probability tensor contains either `inf`, `nan` or "
                    "element < 0");
        sum += each;
      }
      TORCH_CHECK(sum > 0, "invalid multinomial distribution (sum of probabilities <= 0)");
      const double target = unit(engine) * sum;
      int64_t kind = 0;
      for (double passed = left[0];
           kind + 1 < kinds && (passed <= target || left[static_cast<size_t>(kind)] == 0);)
        passed += left[static_cast<size_t>(++kind)];
      out[row * samples + i] = kind;
      if (!replacement) left[static_cast<size_t>(kind)] = 0;
    }
  }
  return (weights.dim() == 1 ? drawn.squeeze(0) : drawn).to(self.device());
}

at::Tensor& multinomial_out(const at::Tensor& self, int64_t samples, bool replacement, Chosen chosen,
                            at::Tensor& out) {
  TORCH_CHECK(out.device() == self.device(), "multinomial arguments must have the same device");
  TORCH_CHECK(out.scalar_type() == at::kLong,
              "multinomial expects Long tensor out, got: ", out.scalar_type());
  const at::Tensor drawn = draw_kinds(self, samples, replacement, std::move(chosen));
  out.resize_(drawn.sizes());
  return out.copy_(drawn);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("uniform_", uniform_);
  m.impl("normal_", normal_);
  m.impl("normal.Tensor_float", normal<const at::Tensor&, double>);
  m.impl("normal.Tensor_float_out", normal_out<const at::Tensor&, double>);
  m.impl("normal.float_Tensor", normal<double, const at::Tensor&>);
  m.impl("normal.float_Tensor_out", normal_out<double, const at::Tensor&>);
  m.impl("normal.Tensor_Tensor", normal<const at::Tensor&, const at::Tensor&>);
  m.impl("normal.Tensor_Tensor_out", normal_out<const at::Tensor&, const at::Tensor&>);
  m.impl("log_normal_", log_normal_);
  m.impl("cauchy_", cauchy_);
  m.impl("geometric_", geometric_);
  m.impl("rrelu_with_noise", rrelu);
  m.impl("rrelu_with_noise_", rrelu_);
  m.impl("exponential_", exponential_);
  m.impl("bernoulli_.float", bernoulli_);
  m.impl("bernoulli_.Tensor", bernoulli_of);
  m.impl("bernoulli.out", bernoulli_out);
  m.impl("random_", random_);
  m.impl("random_.from", random_from);
  m.impl("random_.to", random_to);
  m.impl("randperm.generator_out", randperm_out);
  m.impl("multinomial", draw_kinds);
  m.impl("multinomial.out", multinomial_out);
}

}  // namespace heddle::torch_backend
