// call.cpp: Call over heddle.h's GraphBuilder.
#include "call.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <cmath>
#include <cstring>
#include <limits>

namespace heddle::torch_backend {
namespace {

template <class... Parts>
std::string joined(const Parts&... parts) {
  std::string text;
  (text.append(parts), ...);
  return text;
}

std::optional<int64_t> number_in(const std::string& dim) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(dim.data(), dim.data() + dim.size(), n);
  if (error != std::errc() || end != dim.data() + dim.size()) return std::nullopt;
  return n;
}

// PyTorch's order of kinds: bool < whole numbers < floats.
int kind_of(DType dtype) { return dtype == DType::boolean ? 0 : is_float(dtype) ? 2 : 1; }

int64_t bits_of(DType dtype) { return static_cast<int64_t>(heddle::size_of(dtype)) * 8; }

// Of two of one kind, as torch.promote_types: f16 with bf16 is f32, u8 with a signed type the next larger.
DType promote(DType a, DType b) {
  if (a == b) return a;
  if (kind_of(a) != kind_of(b)) return kind_of(a) > kind_of(b) ? a : b;
  if (is_float(a)) {
    if (bits_of(a) == bits_of(b)) return DType::f32;
    return bits_of(a) > bits_of(b) ? a : b;
  }
  if (a == DType::u8 || b == DType::u8) {
    const DType other = a == DType::u8 ? b : a;
    return other == DType::i8 ? DType::i16 : other;
  }
  return bits_of(a) > bits_of(b) ? a : b;
}

// Tensors with dimensions, tensors without, Python's numbers: a weaker class counts only when its kind is
// higher. As PyTorch's "type promotion attributes" describe.
struct Promotion {
  std::optional<DType> classes[3];

  void add(int strength, DType dtype) {
    std::optional<DType>& seen = classes[strength];
    seen = seen ? promote(*seen, dtype) : dtype;
  }
  std::optional<DType> result() const {
    std::optional<DType> best;
    for (const std::optional<DType>& each : classes) {
      if (each && (!best || kind_of(*each) > kind_of(*best))) best = each;
    }
    return best;
  }
};

}  // namespace

template <class T>
const T& Call::as(int argument) const {
  const auto index = static_cast<size_t>(argument);
  if (index >= arguments_.size() || !std::holds_alternative<T>(arguments_[index])) {
    throw Error(ErrorCode::internal, joined(op_, ": argument ", std::to_string(argument),
                                            " is of another type than its entry expects"));
  }
  return std::get<T>(arguments_[index]);
}

void Call::unsupported(const std::string& what) const {
  throw Error(ErrorCode::unsupported, joined(op_, ": ", what));
}

// ---- arguments

bool Call::has(int argument) const {
  return !std::holds_alternative<std::monostate>(arguments_.at(static_cast<size_t>(argument)));
}

Value Call::tensor(int argument) const {
  return has(argument) ? as<TensorArgument>(argument).value : GraphBuilder::absent();
}

std::vector<Value> Call::tensors(int argument) const {
  std::vector<Value> values;
  for (const TensorArgument& each : as<std::vector<TensorArgument>>(argument)) values.push_back(each.value);
  return values;
}

Int Call::size(int argument) const { return as<Int>(argument); }

int64_t Call::integer(int argument) const {
  const Int& number = as<Int>(argument);
  if (!number.known)
    unsupported(joined("argument ", std::to_string(argument),
                       " has to be a fixed number; make the "
                       "dimension it comes from a static one"));
  return *number.known;
}

double Call::real(int argument) const { return as<double>(argument); }
bool Call::flag(int argument) const { return as<bool>(argument); }
std::string_view Call::text(int argument) const { return as<std::string>(argument); }

std::optional<DType> Call::dtype_argument(int argument) const {
  if (!has(argument)) return std::nullopt;
  return as<DType>(argument);
}

std::vector<Int> Call::ints(int argument) const {
  if (std::holds_alternative<Int>(arguments_.at(static_cast<size_t>(argument)))) return {size(argument)};
  return as<std::vector<Int>>(argument);
}

std::vector<int64_t> Call::integers(int argument) const {
  std::vector<int64_t> numbers;
  for (const Int& each : ints(argument)) {
    if (!each.known) unsupported(joined("argument ", std::to_string(argument), " has to hold fixed numbers"));
    numbers.push_back(*each.known);
  }
  return numbers;
}

std::vector<double> Call::reals(int argument) const { return as<std::vector<double>>(argument); }
std::vector<bool> Call::flags(int argument) const { return as<std::vector<bool>>(argument); }

Value Call::scalar(int argument, DType dtype) {
  const Number& number = as<Number>(argument);
  if (number.known) return literal(*number.known, dtype);
  if (number.value.id != GraphBuilder::absent().id) return cast(number.value, dtype);
  if (numbers_ == nullptr)
    throw Error(ErrorCode::internal, joined(op_, ": a number without a value and without an input"));
  // Of a type that holds the number exactly: halves are rounded once, by the cast.
  const DType held = dtype == DType::boolean ? DType::boolean
                     : !is_float(dtype)      ? DType::i64
                     : dtype == DType::f64   ? DType::f64
                                             : DType::f32;
  return cast(numbers_->input(argument, held), dtype);
}

bool Call::is(int argument, double n) const {
  const std::optional<double>& known = as<Number>(argument).known;
  return known && *known == n;
}

bool Call::is_known(int argument) const { return as<Number>(argument).known.has_value(); }

bool Call::is_computed(int argument) const {
  return !is_known(argument) && as<Number>(argument).value.id != GraphBuilder::absent().id;
}

double Call::known(int argument) const {
  const std::optional<double>& known = as<Number>(argument).known;
  if (!known) unsupported(joined("argument ", std::to_string(argument), " has to be a fixed number"));
  return *known;
}

// ---- types

DType Call::dtype(Value value) const { return graph_.port(value).dtype; }

Extents Call::shape(Value value) const {
  Extents extents;
  for (const std::string& dim : graph_.port(value).shape) extents.push_back(number_in(dim));
  return extents;
}

int Call::rank(Value value) const { return static_cast<int>(graph_.port(value).shape.size()); }

int64_t Call::extent(Value value, int axis) const {
  const Extents extents = shape(value);
  const auto& extent = extents.at(static_cast<size_t>(from_front(axis, static_cast<int>(extents.size()))));
  if (!extent) unsupported(joined("dimension ", std::to_string(axis), " has to be a fixed one here"));
  return *extent;
}

Int Call::size_of(Value value, int axis) {
  const Extents extents = shape(value);
  const int front = from_front(axis, static_cast<int>(extents.size()));
  if (extents.at(static_cast<size_t>(front))) return *extents[static_cast<size_t>(front)];
  const Value all = node("Shape", {value});
  return Int(node("Gather", {all, constant(Tensor::of<int64_t>({}, {front}))}));
}

DType Call::result_dtype(int result) const { return results_.at(static_cast<size_t>(result)).dtype; }
const Extents& Call::result_shape(int result) const { return results_.at(static_cast<size_t>(result)).shape; }

DType Call::common(std::initializer_list<int> arguments) const {
  Promotion promotion;
  const auto of_number = [&](DType kind) { return kind == DType::f64 ? real_ : kind; };
  for (const int argument : arguments) {
    const Argument& given = arguments_.at(static_cast<size_t>(argument));
    if (const auto* tensor = std::get_if<TensorArgument>(&given)) {
      const DType its = dtype(tensor->value);
      promotion.add(tensor->wrapped            ? 2
                    : rank(tensor->value) == 0 ? 1
                                               : 0,
                    tensor->wrapped ? of_number(its) : its);
    } else if (const auto* list = std::get_if<std::vector<TensorArgument>>(&given)) {
      for (const TensorArgument& each : *list)
        promotion.add(rank(each.value) == 0 ? 1 : 0, dtype(each.value));
    } else if (const auto* number = std::get_if<Number>(&given)) {
      promotion.add(2, of_number(number->kind));
    }
  }
  return promotion.result().value_or(real_);
}

// ---- nodes

Value Call::node(std::string_view op, const std::vector<Value>& inputs, const AttributeList& attributes) {
  return graph_.add(op, inputs, attributes);
}

std::vector<Value> Call::nodes(std::string_view op, const std::vector<Value>& inputs, size_t outputs,
                               const AttributeList& attributes) {
  return graph_.add_multiple(op, inputs, outputs, attributes);
}

Value Call::cast(Value value, DType dtype) {
  if (value.id == GraphBuilder::absent().id || this->dtype(value) == dtype) return value;
  return node("Cast", {value}, {{"to", std::string(name(dtype))}});
}

Value Call::literal(double value, DType dtype) {
  if (dtype == DType::f64) return constant(Tensor::of<double>({}, {value}));
  if (dtype == DType::boolean) return constant(Tensor::of<bool>({}, {value != 0}));
  if (is_float(dtype)) return cast(constant(Tensor::of<float>({}, {static_cast<float>(value)})), dtype);
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  const int64_t whole = value >= kLimit   ? std::numeric_limits<int64_t>::max()
                        : value < -kLimit ? std::numeric_limits<int64_t>::min()
                                          : static_cast<int64_t>(value);
  return cast(constant(Tensor::of<int64_t>({}, {whole})), dtype);
}

Value Call::constant(const Tensor& tensor) { return graph_.constant(tensor); }

Value Call::vector(std::span<const int64_t> values) {
  return constant(Tensor::of<int64_t>({static_cast<int64_t>(values.size())}, values));
}

Value Call::rank0(const Int& value) {
  return value.known ? constant(Tensor::of<int64_t>({}, {*value.known})) : value.value;
}

Value Call::vector(const std::vector<Int>& values) {
  if (std::ranges::all_of(values, [](const Int& n) { return n.known.has_value(); })) {
    std::vector<int64_t> known;
    for (const Int& each : values) known.push_back(*each.known);
    return vector(std::span<const int64_t>(known));
  }
  std::vector<Value> parts;
  for (const Int& each : values)
    parts.push_back(each.known ? vector({*each.known}) : unsqueeze(each.value, {0}));
  return node("Concat", parts, {{"axis", int64_t{0}}});
}

// ---- common steps

Value Call::reshape(Value value, const std::vector<Int>& shape) {
  return node("Reshape", {value, vector(shape)}, {{"allowzero", int64_t{1}}});
}

Value Call::transpose(Value value, const std::vector<int64_t>& order) {
  return node("Transpose", {value}, {{"perm", order}});
}

Value Call::swap_axes(Value value, int a, int b) {
  const int rank = this->rank(value);
  std::vector<int64_t> order;
  for (int axis = 0; axis < rank; ++axis) order.push_back(axis);
  std::swap(order.at(static_cast<size_t>(from_front(a, rank))),
            order.at(static_cast<size_t>(from_front(b, rank))));
  return transpose(value, order);
}

Value Call::unsqueeze(Value value, const std::vector<int64_t>& axes) {
  return node("Unsqueeze", {value, vector(std::span<const int64_t>(axes))});
}

Value Call::squeeze(Value value, const std::vector<int64_t>& axes) {
  return node("Squeeze", {value, vector(std::span<const int64_t>(axes))});
}

Value Call::expand(Value value, const std::vector<Int>& shape) {
  return node("Expand", {value, vector(shape)});
}

Value Call::slice(Value value, int axis, Int begin, Int end, int64_t step) {
  return node("Slice", {value, vector(std::vector<Int>{begin}), vector(std::vector<Int>{end}),
                        vector({from_front(axis, rank(value))}), vector({step})});
}

Value Call::result_shape_vector(int result) {
  std::vector<int64_t> known;
  for (const std::optional<int64_t>& extent : result_shape(result)) {
    if (!extent) unsupported("its result's shape has to be a fixed one here");
    known.push_back(*extent);
  }
  return vector(std::span<const int64_t>(known));
}

}  // namespace heddle::torch_backend
