// Element-wise operators of one operand: the output has the operand's shape.
#include <algorithm>
#include <cmath>

#include "ir/ops/activation.h"
#include "ir/ops/rules.h"
#include "ir/ops/tables.h"
#include "ir/ops/walk.h"

namespace heddle::ir {

namespace {

template <Accept wanted>
Inferred infer_same(const Node&, Operands in) {
  HEDDLE_TRY(accept(*in[0], "x", wanted));
  return one(in[0]->type.dtype, in[0]->type.shape);
}

Inferred infer_identity(const Node&, Operands in) {
  return one(in[0]->type.dtype, in[0]->type.shape, in[0]->integers());
}

template <DimFunction f>
Inferred infer_with_contents(const Node& node, Operands in) {
  HEDDLE_TRY(accept(*in[0], "x", Accept::kNumber));
  return one(in[0]->type.dtype, in[0]->type.shape, zip_contents(node, in, in[0]->type, f));
}

std::optional<Dim> negated(const Node&, std::span<const Dim> x) { return Dim(-1) * x[0]; }

std::optional<Dim> positive_part(const Node&, std::span<const Dim> x) { return Dim::max(x[0], 0); }

std::optional<Dim> logical_not(const Node&, std::span<const Dim> x) {
  if (!x[0].is_static()) return std::nullopt;
  return Dim(x[0].value() == 0 ? 1 : 0);
}

Inferred infer_not(const Node& node, Operands in) {
  HEDDLE_TRY(accept(*in[0], "x", Accept::kBool));
  return one(DType::kBool, in[0]->type.shape, zip_contents(node, in, in[0]->type, logical_not));
}

Inferred infer_is(const Node&, Operands in) {
  HEDDLE_TRY(accept(*in[0], "x", Accept::kFloat));
  return one(DType::kBool, in[0]->type.shape);
}

template <auto f>  // double -> double
Status map_floats(const Node&, DataIn in, DataOut out) {
  for (int64_t i = 0; i < out[0].elements(); ++i) out[0].set(i, f(in[0]->get(i)));
  return {};
}

template <auto f, auto g>  // double -> double, int64 -> int64
Status map_numbers(const Node& node, DataIn in, DataOut out) {
  if (is_float(in[0]->dtype())) return map_floats<f>(node, in, out);
  for (int64_t i = 0; i < out[0].elements(); ++i) out[0].set_i64(i, g(in[0]->get_i64(i)));
  return {};
}

// Operators with one or two numbers as attributes: alpha, beta.
template <auto f>
Status map_with(const Node& node, DataIn in, DataOut out, double alpha, double beta) {
  alpha = node.attributes.f64("alpha", alpha);
  beta = node.attributes.f64("beta", beta);
  for (int64_t i = 0; i < out[0].elements(); ++i) out[0].set(i, f(in[0]->get(i), alpha, beta));
  return {};
}

template <ActivationKind kind>
double activated(double x) {
  return activate({kind}, x);
}
double sign(double x) { return std::isnan(x) ? x : static_cast<double>((x > 0) - (x < 0)); }
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }
double clip01(double x) { return x < 0 ? 0 : x > 1 ? 1 : x; }

Status reference_hard_sigmoid(const Node& node, DataIn in, DataOut out) {
  return map_with<[](double x, double a, double b) { return clip01(a * x + b); }>(node, in, out, 0.2, 0.5);
}
Status reference_leaky_relu(const Node& node, DataIn in, DataOut out) {
  return map_with<[](double x, double a, double) { return x < 0 ? a * x : x; }>(node, in, out, 0.01, 0);
}
Status reference_elu(const Node& node, DataIn in, DataOut out) {
  return map_with<[](double x, double a, double) { return x < 0 ? a * std::expm1(x) : x; }>(node, in, out, 1,
                                                                                            0);
}

Inferred infer_gelu(const Node& node, Operands in) {
  const std::string kind = node.attributes.str("approximate", "none");
  if (kind != "none" && kind != "tanh") {
    return Status::invalid("attribute 'approximate' is '", kind, "'; it has to be 'none' or 'tanh'");
  }
  return infer_same<Accept::kFloat>(node, in);
}
Status reference_gelu(const Node& node, DataIn in, DataOut out) {
  if (node.attributes.str("approximate") == "tanh")
    return map_floats<activated<ActivationKind::kGeluTanh>>(node, in, out);
  return map_floats<activated<ActivationKind::kGelu>>(node, in, out);
}

Status reference_is_inf(const Node& node, DataIn in, DataOut out) {
  const bool positive = node.attributes.i64("detect_positive", 1) != 0;
  const bool negative = node.attributes.i64("detect_negative", 1) != 0;
  for (int64_t i = 0; i < out[0].elements(); ++i) {
    const double x = in[0]->get(i);
    out[0].set_i64(i, std::isinf(x) && (x > 0 ? positive : negative) ? 1 : 0);
  }
  return {};
}

Status reference_identity(const Node&, DataIn in, DataOut out) {
  for (int64_t i = 0; i < out[0].elements(); ++i) copy_element(out[0], i, *in[0], i);
  return {};
}

// Contents survive a cast between integers when they fit; symbols stand for extents, which fit everywhere but
// in 8 bits.
std::optional<Dim> fitting(const Node& node, std::span<const Dim> x) {
  const DType to = dtype_from_name(node.attributes.str("to")).value_or(DType::kI64);
  if (to == DType::kBool) {
    if (Dim::may_equal(x[0], 0)) return x[0].is(0) ? std::optional(Dim(0)) : std::nullopt;
    return Dim(1);
  }
  if (to == DType::kI64 || (to == DType::kI32 && !x[0].is_static())) return x[0];
  if (!x[0].is_static()) return std::nullopt;
  if (to == DType::kU64) return x[0].value() >= 0 ? std::optional(x[0]) : std::nullopt;
  Tensor number = Tensor::zeros(to, {});
  number.set_i64(0, x[0].value());
  return Dim(number.get_i64(0));
}

Inferred infer_cast(const Node& node, Operands in) {
  const std::string to = node.attributes.str("to");
  const std::optional<DType> dtype = dtype_from_name(to);
  if (!dtype.has_value()) {
    return Status::invalid("attribute 'to' is '", to, "'; it has to be one of ", dtype_names());
  }
  const TensorType type{*dtype, in[0]->type.shape};
  return one(*dtype, type.shape, zip_contents(node, in, type, fitting));
}

Status reference_cast(const Node&, DataIn in, DataOut out) {
  const bool exact = !is_float(in[0]->dtype()) && !is_float(out[0].dtype());
  const bool to_f32 =
      !is_float(in[0]->dtype()) && in[0]->dtype() != DType::kU64 && out[0].dtype() == DType::kF32;
  for (int64_t i = 0; i < out[0].elements(); ++i) {
    if (exact || to_f32) {
      out[0].set_i64(i, in[0]->get_i64(i));
    } else {
      out[0].set(i, in[0]->get(i));
    }
  }
  return {};
}

Inferred infer_clip(const Node& node, Operands in) {
  for (size_t i = 1; i < in.size(); ++i) {
    if (in[i] == nullptr) continue;
    const std::string_view name = i == 1 ? "min" : "max";
    HEDDLE_TRY(same_dtype(*in[0], "x", *in[i], name));
    if (in[i]->type.rank() != 0) HEDDLE_TRY(check_shape(*in[i], name, {1}));
  }
  return infer_same<Accept::kNumber>(node, in);
}

template <class T, T (Tensor::*get)(int64_t) const, void (Tensor::*set)(int64_t, T)>
void clip(DataIn in, Tensor& out) {
  const Tensor* low = optional_input(in, 1);
  const Tensor* high = optional_input(in, 2);
  for (int64_t i = 0; i < out.elements(); ++i) {
    T x = (in[0]->*get)(i);
    if (low != nullptr && x < (low->*get)(0)) x = (low->*get)(0);
    if (high != nullptr && x > (high->*get)(0)) x = (high->*get)(0);
    (out.*set)(i, x);
  }
}

Status reference_clip(const Node&, DataIn in, DataOut out) {
  if (is_float(in[0]->dtype())) {
    clip<double, &Tensor::get, &Tensor::set>(in, out[0]);
  } else {
    clip<int64_t, &Tensor::get_i64, &Tensor::set_i64>(in, out[0]);
  }
  return {};
}

OpDef entry(std::string_view name, decltype(OpDef::infer) infer, Reference reference,
            std::vector<AttributeDef> attributes = {}) {
  return {name, 1, 1, 1, 1, std::move(attributes), infer, reference, Dependence::kElementwise};
}

template <auto f>
OpDef of_floats(std::string_view name) {
  return entry(name, infer_same<Accept::kFloat>, map_floats<f>);
}

int64_t wrap_abs(int64_t x) { return x < 0 ? wrap_sub(0, x) : x; }
int64_t wrap_negate(int64_t x) { return wrap_sub(0, x); }

}  // namespace

std::vector<OpDef> unary_ops() {
  using enum AttributeKind;
  return {
      entry("Abs", infer_same<Accept::kNumber>, map_numbers<[](double x) { return std::fabs(x); }, wrap_abs>),
      entry("Neg", infer_with_contents<negated>, map_numbers<[](double x) { return -x; }, wrap_negate>),
      entry("Sign", infer_same<Accept::kNumber>,
            map_numbers<sign, [](int64_t x) { return int64_t{(x > 0) - (x < 0)}; }>),
      entry("Relu", infer_with_contents<positive_part>,
            map_numbers<activated<ActivationKind::kRelu>, [](int64_t x) { return std::max<int64_t>(x, 0); }>),
      entry("Square", infer_same<Accept::kNumber>,
            map_numbers<[](double x) { return x * x; }, [](int64_t x) { return wrap_mul(x, x); }>),
      of_floats<[](double x) { return std::exp(x); }>("Exp"),
      of_floats<[](double x) { return std::log(x); }>("Log"),
      of_floats<[](double x) { return std::sqrt(x); }>("Sqrt"),
      of_floats<[](double x) { return 1 / std::sqrt(x); }>("Rsqrt"),
      of_floats<[](double x) { return 1 / x; }>("Reciprocal"),
      of_floats<[](double x) { return std::erf(x); }>("Erf"),
      of_floats<activated<ActivationKind::kTanh>>("Tanh"),
      of_floats<activated<ActivationKind::kSigmoid>>("Sigmoid"),
      of_floats<[](double x) { return std::floor(x); }>("Floor"),
      of_floats<[](double x) { return std::ceil(x); }>("Ceil"),
      of_floats<[](double x) { return std::nearbyint(x); }>("Round"),  // halves to even
      of_floats<[](double x) { return std::sin(x); }>("Sin"),
      of_floats<[](double x) { return std::cos(x); }>("Cos"),
      of_floats<softplus>("Softplus"),
      of_floats<[](double x) { return x / (1 + std::fabs(x)); }>("Softsign"),
      of_floats<activated<ActivationKind::kHardSwish>>("HardSwish"),
      of_floats<activated<ActivationKind::kSilu>>("Silu"),
      entry("HardSigmoid", infer_same<Accept::kFloat>, reference_hard_sigmoid,
            {{"alpha", kFloat}, {"beta", kFloat}}),
      entry("LeakyRelu", infer_same<Accept::kFloat>, reference_leaky_relu, {{"alpha", kFloat}}),
      entry("Elu", infer_same<Accept::kFloat>, reference_elu, {{"alpha", kFloat}}),
      entry("Gelu", infer_gelu, reference_gelu, {{"approximate", kString}}),
      entry("Not", infer_not,
            map_numbers<activated<ActivationKind::kRelu>, [](int64_t x) { return int64_t{x == 0}; }>),
      entry("IsNaN", infer_is, map_floats<[](double x) { return std::isnan(x) ? 1.0 : 0.0; }>),
      entry("IsInf", infer_is, reference_is_inf, {{"detect_negative", kInt}, {"detect_positive", kInt}}),
      entry("Identity", infer_identity, reference_identity),
      entry("Cast", infer_cast, reference_cast, {{"to", kString, true}}),
      {"Clip", 1, 3, 1, 1, {}, infer_clip, reference_clip, Dependence::kElementwise},
  };
}

}  // namespace heddle::ir
