// Trigonometric and hyperbolic functions and their inverses; Sin, Cos and Tanh are beside the activations.
#include <cmath>

#include "ir/ops/rules.h"
#include "ir/ops/tables.h"

namespace heddle::ir {

namespace {

Inferred infer_function(const Node&, Operands in) {
  HEDDLE_TRY(accept(*in[0], "x", Accept::kFloat));
  return one(in[0]->type.dtype, in[0]->type.shape);
}

template <auto f>
Status reference_function(const Node&, DataIn in, DataOut out) {
  for (int64_t i = 0; i < out[0].elements(); ++i) out[0].set(i, f(in[0]->get(i)));
  return {};
}

template <auto f>
OpDef entry(std::string_view name) {
  return {name, 1, 1, 1, 1, {}, infer_function, reference_function<f>, Dependence::kElementwise};
}

}  // namespace

std::vector<OpDef> trigonometry_ops() {
  return {
      entry<[](double x) { return std::tan(x); }>("Tan"),
      entry<[](double x) { return std::asin(x); }>("Asin"),
      entry<[](double x) { return std::acos(x); }>("Acos"),
      entry<[](double x) { return std::atan(x); }>("Atan"),
      entry<[](double x) { return std::sinh(x); }>("Sinh"),
      entry<[](double x) { return std::cosh(x); }>("Cosh"),
      entry<[](double x) { return std::asinh(x); }>("Asinh"),
      entry<[](double x) { return std::acosh(x); }>("Acosh"),
      entry<[](double x) { return std::atanh(x); }>("Atanh"),
  };
}

}  // namespace heddle::ir
