// Element-wise operators of several operands, broadcast against each other.
#include <cmath>
#include <limits>

#include "ir/ops/rules.h"
#include "ir/ops/tables.h"
#include "ir/ops/walk.h"

namespace heddle::ir {

namespace {

Result<Shape> broadcast_all(Operands in) {
  Shape shape = in[0]->type.shape;
  for (size_t i = 1; i < in.size(); ++i) {
    HEDDLE_TRY_ASSIGN(shape, broadcast(shape, in[i]->type.shape));
  }
  return shape;
}

// Operands of one dtype; the result has `dtype`, or theirs.
Inferred infer_joined(const Node& node, Operands in, Accept wanted, std::optional<DType> dtype,
                      DimFunction follow) {
  HEDDLE_TRY(accept(*in[0], "input 0", wanted));
  for (size_t i = 1; i < in.size(); ++i) {
    HEDDLE_TRY(same_dtype(*in[0], "input 0", *in[i], text("input ", i)));
  }
  HEDDLE_TRY_ASSIGN(Shape shape, broadcast_all(in));
  TensorType type{dtype.value_or(in[0]->type.dtype), std::move(shape)};
  std::optional<std::vector<Dim>> contents =
      is_float(in[0]->type.dtype) ? std::nullopt : zip_contents(node, in, type, follow);
  return one(type.dtype, std::move(type.shape), std::move(contents));
}

std::optional<Dim> untold(const Node&, std::span<const Dim>) { return std::nullopt; }

// Dims saturate where integers wrap, so a result at the border is not followed.
std::optional<Dim> exact(Dim dim) {
  if (dim.is_static() && (dim.value() == Dim::kHuge || dim.value() == -Dim::kHuge)) return std::nullopt;
  return dim;
}
// Narrow integers wrap early; their contents are not worth following.
template <DimFunction f>
Inferred infer_arithmetic(const Node& node, Operands in) {
  const bool wide = in[0]->type.dtype == DType::kI64 || in[0]->type.dtype == DType::kI32;
  return infer_joined(node, in, Accept::kNumberOrU64, std::nullopt, wide ? f : untold);
}
template <DimFunction f>
Inferred infer_comparison(const Node& node, Operands in) {
  return infer_joined(node, in, Accept::kNumberOrU64, DType::kBool, f);
}
template <DimFunction f>
Inferred infer_logic(const Node& node, Operands in) {
  return infer_joined(node, in, Accept::kBool, std::nullopt, f);
}

using Pair = std::span<const Dim>;
std::optional<Dim> dim_add(const Node&, Pair x) { return exact(x[0] + x[1]); }
std::optional<Dim> dim_sub(const Node&, Pair x) { return exact(x[0] - x[1]); }
std::optional<Dim> dim_mul(const Node&, Pair x) { return exact(x[0] * x[1]); }
std::optional<Dim> dim_div(const Node&, Pair x) {
  if (x[0].is_static() && x[1].is_static()) {
    return x[1].is(0) ? std::nullopt : exact(x[1].is(-1) ? Dim(0) - x[0] : Dim(x[0].value() / x[1].value()));
  }
  if (std::optional<Dim> quotient = Dim::divide_exact(x[0], x[1])) return quotient;
  // Division truncates; it is a floor for what a shape holds, which is never negative in a run that is not
  // refused.
  return x[1].is(0) ? std::nullopt : std::optional(Dim::floor_div(x[0], x[1]));
}
std::optional<Dim> dim_mod(const Node&, Pair x) {
  if (!x[0].non_negative() || !x[1].is_static() || x[1].value() <= 0) return std::nullopt;
  return x[0] - Dim::floor_div(x[0], x[1]) * x[1];
}
std::optional<Dim> dim_min(const Node&, Pair x) {
  Dim least = x[0];
  for (const Dim& dim : x.subspan(1)) least = Dim::min(least, dim);
  return least;
}
std::optional<Dim> dim_max(const Node&, Pair x) {
  Dim most = x[0];
  for (const Dim& dim : x.subspan(1)) most = Dim::max(most, dim);
  return most;
}
std::optional<Dim> dim_equal(const Node&, Pair x) {
  if (x[0] == x[1]) return Dim(1);
  return Dim::may_equal(x[0], x[1]) ? std::nullopt : std::optional(Dim(0));
}
std::optional<Dim> dim_less_equal(const Node&, Pair x) {
  if ((x[1] - x[0]).non_negative()) return Dim(1);
  return (x[0] - x[1] - 1).non_negative() ? std::optional(Dim(0)) : std::nullopt;
}
std::optional<Dim> flipped(std::optional<Dim> known) {
  return known.has_value() ? std::optional(Dim(1) - *known) : std::nullopt;
}
std::optional<Dim> dim_greater(const Node& node, Pair x) { return flipped(dim_less_equal(node, x)); }
std::optional<Dim> dim_greater_equal(const Node& node, Pair x) {
  const Dim swapped[] = {x[1], x[0]};
  return dim_less_equal(node, swapped);
}
std::optional<Dim> dim_less(const Node& node, Pair x) { return flipped(dim_greater_equal(node, x)); }
std::optional<Dim> dim_xor(const Node&, Pair x) {
  if (!x[0].is_static() || !x[1].is_static()) return std::nullopt;
  return Dim(x[0] == x[1] ? 0 : 1);
}

// Folds the operands from the left: integers exactly in 64 bits, floats in double. u64 goes by its bits,
// through `u` where those of the result depend on the sign.
template <auto f, auto g, auto u = g>
Status fold(const Node&, DataIn in, DataOut out) {
  const bool floats = is_float(in[0]->dtype()), u64 = in[0]->dtype() == DType::kU64;
  std::vector<Strides> strides;
  for (const Tensor* t : in) strides.emplace_back(t->extents(), out[0].extents().rank());
  walk(out[0].extents(), [&](const Index& index, int64_t flat) {
    double real = floats ? in[0]->get(strides[0].at(index)) : 0;
    int64_t whole = floats ? 0 : in[0]->get_i64(strides[0].at(index));
    for (size_t i = 1; i < in.size(); ++i) {
      const int64_t at = strides[i].at(index);
      if (floats) {
        real = f(real, in[i]->get(at));
      } else {
        whole = u64 ? u(whole, in[i]->get_i64(at)) : g(whole, in[i]->get_i64(at));
      }
    }
    floats ? out[0].set(flat, real) : out[0].set_i64(flat, whole);
  });
  return {};
}

// As NumPy: x / 0 is 0 for integers, and so is x mod 0.
int64_t divide(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? wrap_sub(0, a) : a / b; }
int64_t remainder_c(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
double real_remainder(double a, double b) { return std::fmod(a, b); }
double real_remainder_floor(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest == 0 ? std::copysign(rest, b) : (rest < 0) != (b < 0) ? rest + b : rest;
}
int64_t remainder_floor(int64_t a, int64_t b) {
  const int64_t rest = remainder_c(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t greater(int64_t a, int64_t b) { return a > b ? a : b; }
double least(double a, double b) { return std::isnan(a) || a < b ? a : b; }  // NaN wins
double most(double a, double b) { return std::isnan(a) || a > b ? a : b; }

// The same of u64, given and returned by their bits.
int64_t bits(uint64_t x) { return static_cast<int64_t>(x); }
uint64_t wide(int64_t bits) { return static_cast<uint64_t>(bits); }
int64_t divide_wide(int64_t a, int64_t b) { return b == 0 ? 0 : bits(wide(a) / wide(b)); }
int64_t remainder_wide(int64_t a, int64_t b) { return b == 0 ? 0 : bits(wide(a) % wide(b)); }
int64_t lesser_wide(int64_t a, int64_t b) { return wide(a) < wide(b) ? a : b; }
int64_t greater_wide(int64_t a, int64_t b) { return wide(a) > wide(b) ? a : b; }

int64_t power_wide(int64_t base, uint64_t exponent) {
  int64_t product = 1;
  for (; exponent > 0; exponent >>= 1, base = wrap_mul(base, base)) {
    if ((exponent & 1) != 0) product = wrap_mul(product, base);
  }
  return product;
}

int64_t power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  return power_wide(base, wide(exponent));
}

Inferred infer_pow(const Node&, Operands in) {
  HEDDLE_TRY(accept(*in[0], "x", Accept::kNumberOrU64));
  HEDDLE_TRY(accept(*in[1], "y", Accept::kNumberOrU64));
  HEDDLE_TRY_ASSIGN(Shape shape, broadcast_all(in));
  return one(in[0]->type.dtype, std::move(shape));
}

// The result has the base's dtype; the exponent's may differ.
Status reference_pow(const Node&, DataIn in, DataOut out) {
  const Strides x(in[0]->extents(), out[0].extents().rank());
  const Strides y(in[1]->extents(), out[0].extents().rank());
  const bool integers = is_integer(in[0]->dtype()) && is_integer(in[1]->dtype());
  const bool u64 = in[1]->dtype() == DType::kU64;
  walk(out[0].extents(), [&](const Index& index, int64_t flat) {
    if (integers) {
      const int64_t base = in[0]->get_i64(x.at(index)), exponent = in[1]->get_i64(y.at(index));
      out[0].set_i64(flat, u64 ? power_wide(base, wide(exponent)) : power(base, exponent));
    } else {
      out[0].set(flat, std::pow(in[0]->get(x.at(index)), in[1]->get(y.at(index))));
    }
  });
  return {};
}

Inferred infer_mod(const Node& node, Operands in) {
  return infer_joined(node, in, Accept::kNumberOrU64, std::nullopt,
                      node.attributes.i64("fmod") != 0 ? untold : dim_mod);
}

Status reference_mod(const Node& node, DataIn in, DataOut out) {
  if (node.attributes.i64("fmod") != 0)
    return fold<real_remainder, remainder_c, remainder_wide>(node, in, out);
  return fold<real_remainder_floor, remainder_floor, remainder_wide>(node, in, out);
}

Inferred infer_equal(const Node& node, Operands in) {
  return infer_joined(node, in, Accept::kAny, DType::kBool, dim_equal);
}

Inferred infer_prelu(const Node& node, Operands in) {
  HEDDLE_TRY_ASSIGN(std::vector<Value> out, infer_joined(node, in, Accept::kFloat, std::nullopt, untold));
  if (out[0].type.rank() == in[0]->type.rank() && may_equal(out[0].type.shape, in[0]->type.shape)) return out;
  return Status::invalid("slope is ", in[1]->type, "; it has to broadcast to the shape of x, ", in[0]->type);
}

// The condition has a dtype of its own.
Inferred infer_where(const Node& node, Operands in) {
  HEDDLE_TRY(accept(*in[0], "condition", Accept::kBool));
  HEDDLE_TRY(same_dtype(*in[1], "x", *in[2], "y"));
  HEDDLE_TRY_ASSIGN(Shape shape, broadcast_all(in));
  const TensorType type{in[1]->type.dtype, std::move(shape)};
  const auto choose = [](const Node&, std::span<const Dim> x) -> std::optional<Dim> {
    if (x[1] == x[2]) return x[1];
    if (!x[0].is_static()) return std::nullopt;
    return x[0].is(0) ? x[2] : x[1];
  };
  return one(type.dtype, type.shape, zip_contents(node, in, type, choose));
}

Status reference_where(const Node&, DataIn in, DataOut out) {
  const size_t rank = out[0].extents().rank();
  const Strides strides[] = {{in[0]->extents(), rank}, {in[1]->extents(), rank}, {in[2]->extents(), rank}};
  walk(out[0].extents(), [&](const Index& index, int64_t flat) {
    const size_t chosen = in[0]->get_i64(strides[0].at(index)) != 0 ? 1 : 2;
    copy_element(out[0], flat, *in[chosen], strides[chosen].at(index));
  });
  return {};
}

OpDef entry(std::string_view name, decltype(OpDef::infer) infer, Reference reference,
            std::vector<AttributeDef> attributes = {}) {
  return {name, 2, 2, 1, 1, std::move(attributes), infer, reference, Dependence::kElementwise};
}

template <auto f>
Status compare(const Node&, DataIn in, DataOut out) {
  const Strides x(in[0]->extents(), out[0].extents().rank());
  const Strides y(in[1]->extents(), out[0].extents().rank());
  const bool floats = is_float(in[0]->dtype()), u64 = in[0]->dtype() == DType::kU64;
  walk(out[0].extents(), [&](const Index& index, int64_t flat) {
    const int64_t i = x.at(index), k = y.at(index);
    if (floats) {
      out[0].set_i64(flat, f(in[0]->get(i), in[1]->get(k)));
    } else if (u64) {
      out[0].set_i64(flat, f(wide(in[0]->get_i64(i)), wide(in[1]->get_i64(k))));
    } else {
      out[0].set_i64(flat, f(in[0]->get_i64(i), in[1]->get_i64(k)));
    }
  });
  return {};
}

constexpr auto kEq = [](auto a, auto b) { return a == b; };
constexpr auto kLt = [](auto a, auto b) { return a < b; };
constexpr auto kLe = [](auto a, auto b) { return a <= b; };
constexpr auto kGt = [](auto a, auto b) { return a > b; };
constexpr auto kGe = [](auto a, auto b) { return a >= b; };
constexpr auto kNoFloat = [](double a, double) { return a; };  // never called: the operands are bool

}  // namespace

std::vector<OpDef> binary_ops() {
  using enum AttributeKind;
  return {
      entry("Add", infer_arithmetic<dim_add>, fold<[](double a, double b) { return a + b; }, wrap_add>),
      entry("Sub", infer_arithmetic<dim_sub>, fold<[](double a, double b) { return a - b; }, wrap_sub>),
      entry("Mul", infer_arithmetic<dim_mul>, fold<[](double a, double b) { return a * b; }, wrap_mul>),
      entry("Div", infer_arithmetic<dim_div>,
            fold<[](double a, double b) { return a / b; }, divide, divide_wide>),
      entry("Pow", infer_pow, reference_pow),
      entry("Mod", infer_mod, reference_mod, {{"fmod", kInt}}),
      {"Min",
       1,
       -1,
       1,
       1,
       {},
       infer_arithmetic<dim_min>,
       fold<least, lesser, lesser_wide>,
       Dependence::kElementwise},
      {"Max",
       1,
       -1,
       1,
       1,
       {},
       infer_arithmetic<dim_max>,
       fold<most, greater, greater_wide>,
       Dependence::kElementwise},
      entry("Equal", infer_equal, compare<kEq>),
      entry("Less", infer_comparison<dim_less>, compare<kLt>),
      entry("LessOrEqual", infer_comparison<dim_less_equal>, compare<kLe>),
      entry("Greater", infer_comparison<dim_greater>, compare<kGt>),
      entry("GreaterOrEqual", infer_comparison<dim_greater_equal>, compare<kGe>),
      entry("And", infer_logic<dim_min>, fold<kNoFloat, [](int64_t a, int64_t b) { return a & b; }>),
      entry("Or", infer_logic<dim_max>, fold<kNoFloat, [](int64_t a, int64_t b) { return a | b; }>),
      entry("Xor", infer_logic<dim_xor>, fold<kNoFloat, [](int64_t a, int64_t b) { return a ^ b; }>),
      entry("PRelu", infer_prelu,
            fold<[](double x, double slope) { return x < 0 ? x * slope : x; }, wrap_mul>),
      {"Where", 3, 3, 1, 1, {}, infer_where, reference_where, Dependence::kElementwise},
  };
}

}  // namespace heddle::ir
