// term.h: formulas of an entry, written as formulas: 2 * atanh(x / (2 + x)) adds three nodes.
//
//   What       A Term is a value of one Call. Operators between two Terms take operands of one dtype and
//              broadcast; a number beside a Term is a literal of the Term's dtype. Comparisons and & | ! work
//              on bools.
//   Lifetime   As long as the Call.
//   Threads    One thread at a time.
#pragma once

#include "../call.h"
#include "../table.h"

namespace heddle::torch_backend {

// A node's operator as a template argument.
template <size_t length>
struct Name {
  char text[length];
  constexpr Name(const char (&name)[length]) {  // NOLINT: "Exp" is a Name
    for (size_t i = 0; i < length; ++i) text[i] = name[i];
  }
};

class Term {
 public:
  Term(Call& call, Value value) : call_(&call), value_(value) {}
  operator Value() const { return value_; }  // NOLINT: a Term is a Value that knows its Call
  Call& call() const { return *call_; }
  DType dtype() const { return call_->dtype(value_); }
  int rank() const { return call_->rank(value_); }
  bool real() const { return is_float(dtype()); }
  bool boolean() const { return dtype() == DType::boolean; }
  Term cast(DType dtype) const { return {*call_, call_->cast(value_, dtype)}; }
  Term like(double number) const { return {*call_, call_->literal(number, dtype())}; }
  Term apply(std::string_view op, const AttributeList& attributes = {}) const {
    return {*call_, call_->node(op, {value_}, attributes)};
  }
  Term with(std::string_view op, Value other, const AttributeList& attributes = {}) const {
    return {*call_, call_->node(op, {value_, other}, attributes)};
  }

 private:
  Call* call_;
  Value value_;
};

#define HEDDLE_TERM_OPERATOR(symbol, op)                                                 \
  inline Term operator symbol(const Term& a, const Term& b) { return a.with(op, b); }    \
  inline Term operator symbol(const Term& a, double b) { return a.with(op, a.like(b)); } \
  inline Term operator symbol(double a, const Term& b) { return b.like(a).with(op, b); }
HEDDLE_TERM_OPERATOR(+, "Add")
HEDDLE_TERM_OPERATOR(-, "Sub")
HEDDLE_TERM_OPERATOR(*, "Mul")
HEDDLE_TERM_OPERATOR(/, "Div")
HEDDLE_TERM_OPERATOR(<, "Less")
HEDDLE_TERM_OPERATOR(<=, "LessOrEqual")
HEDDLE_TERM_OPERATOR(>, "Greater")
HEDDLE_TERM_OPERATOR(>=, "GreaterOrEqual")
HEDDLE_TERM_OPERATOR(==, "Equal")
#undef HEDDLE_TERM_OPERATOR

inline Term operator-(const Term& x) { return x.apply("Neg"); }
inline Term operator!(const Term& x) { return x.apply("Not"); }
inline Term operator!=(const Term& a, const Term& b) { return !(a == b); }
inline Term operator!=(const Term& a, double b) { return !(a == b); }
inline Term operator&(const Term& a, const Term& b) { return a.with("And", b); }
inline Term operator|(const Term& a, const Term& b) { return a.with("Or", b); }

template <Name op>
Term map(const Term& x) {
  return x.apply(op.text);
}
inline Term abs(const Term& x) { return x.apply("Abs"); }
inline Term exp(const Term& x) { return x.apply("Exp"); }
inline Term log(const Term& x) { return x.apply("Log"); }
inline Term sqrt(const Term& x) { return x.apply("Sqrt"); }
inline Term floor(const Term& x) { return x.apply("Floor"); }
inline Term softplus(const Term& x) { return x.apply("Softplus"); }  // log(1 + exp(x))
inline Term pow(const Term& x, const Term& exponent) { return x.with("Pow", exponent); }
inline Term is_infinite(const Term& x) { return x.apply("IsInf"); }
inline Term is_nan(const Term& x) { return x.apply("IsNaN"); }
inline Term select(const Term& condition, const Term& yes, const Term& no) {
  return {yes.call(), yes.call().node("Where", {condition, yes, no})};
}
inline Term select(const Term& condition, double yes, const Term& no) {
  return select(condition, no.like(yes), no);
}
inline Term select(const Term& condition, const Term& yes, double no) {
  return select(condition, yes, yes.like(no));
}
// The greater (lesser) one; a NaN on either side wins. Bools too.
inline Term greater(const Term& a, const Term& b) { return a.with(a.boolean() ? "Or" : "Max", b); }
inline Term lesser(const Term& a, const Term& b) { return a.with(a.boolean() ? "And" : "Min", b); }

Term log1p(const Term& x);
Term expm1(const Term& x);
Term trunc(const Term& x);
Term sign_bit(const Term& x);                     // of floats, -0 and NaN included
Term copy_sign(const Term& x, const Term& sign);  // of floats

// ---- operands of an entry

// Argument of type Tensor in the dtype that the first result is computed in.
inline Term operand(Call& call, int argument) {
  return {call, call.cast(call.tensor(argument), wide(call.result_dtype()))};
}
// The same of an argument of type Scalar.
inline Term number(Call& call, int argument) {
  return {call, call.scalar(argument, wide(call.result_dtype()))};
}
// The same of one that bounds the result from below and from above. What PyTorch refuses of a whole one is
// refused (bounds.h); it is brought into the range of the result's dtype, since what is left outside bounds
// nothing.
Term least(Call& call, int argument);
Term greatest(Call& call, int argument);
// As PyTorch rounds between two steps on f16 and bf16, where it does not compute in f32 throughout.
inline Term rounded(const Term& x) { return x.cast(x.call().result_dtype()).cast(x.dtype()); }
// A tensor as it is.
inline Term given(Call& call, int argument) { return {call, call.tensor(argument)}; }

// An entry of one tensor: f of argument 0 in the dtype that the result is computed in.
template <Term (*f)(const Term&)>
Results of_operand(Call& call) {
  return Value(f(operand(call, 0)));
}

// An entry of two, of which one may be of type Scalar.
enum class Scalar : uint8_t { none, left, right };
inline constexpr auto kLeft = Scalar::left, kRight = Scalar::right;  // short, for the tables of entries
template <Term (*f)(const Term&, const Term&), Scalar scalar = Scalar::none>
Results of_operands(Call& call) {
  const Term left = scalar == Scalar::left ? number(call, 0) : operand(call, 0);
  const Term right = scalar == Scalar::right ? number(call, 1) : operand(call, 1);
  return Value(f(left, right));
}

// ---- shapes

std::vector<Int> sizes(Call& call, Value value);  // known, or read off the value
Value shape_of(Call& call, Value value);          // i64[rank]
Term iota(Call& call, const Int& count);          // i64[count]: 0, 1, ...
// Of an index that may not count from the end: the device refuses what becomes of a negative one, n + 2^63,
// and message_of() of device.h names n.
Term without_negatives(const Term& index);
// 0, 1, ... along one axis of a value, shaped to broadcast against it.
Term positions(Call& call, Value value, int axis);
Term lifted(const Term& x);  // rank 0 as rank 1; others as they are

}  // namespace heddle::torch_backend
