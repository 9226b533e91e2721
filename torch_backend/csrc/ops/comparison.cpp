// comparison.cpp: operators with two operands of a common dtype and a bool result.
#include "term.h"

namespace heddle::torch_backend {
namespace {

// In the dtype that PyTorch compares in; f16 and bf16 are exact in f32. A Scalar is rounded to it first.
template <Scalar scalar>
Term side(Call& call, int argument) {
  const DType dtype = call.common({0, 1});
  const bool number = (argument == 0 && scalar == Scalar::left) || (argument == 1 && scalar == Scalar::right);
  const Value value = number ? call.scalar(argument, dtype) : call.cast(call.tensor(argument), dtype);
  return {call, call.cast(value, wide(dtype))};
}

template <Name op, Scalar scalar = Scalar::none>
Results ordered(Call& call) {
  const Term a = side<scalar>(call, 0);
  const Term b = side<scalar>(call, 1);
  if (!a.boolean()) return Value(a.with(op.text, b));
  return Value(a.cast(DType::i64).with(op.text, b.cast(DType::i64)));
}

template <Scalar scalar = Scalar::none>
Results equal(Call& call) {
  return Value(side<scalar>(call, 0) == side<scalar>(call, 1));
}

template <Scalar scalar = Scalar::none>
Results different(Call& call) {
  return Value(side<scalar>(call, 0) != side<scalar>(call, 1));
}

// elements, test_elements, assume_unique, invert: every pair is compared.
template <Scalar scalar = Scalar::none>
Results is_in(Call& call) {
  const Term element = side<scalar>(call, 0);
  const Term tested = {call, call.reshape(side<scalar>(call, 1), {Int(-1)})};
  const Term pairs = Term(call, call.unsqueeze(element, {-1})) == tested;
  const Term found = pairs.with("ReduceMax", call.vector({-1}), {{"keepdims", int64_t{0}}});
  return Value(call.flag(3) ? !found : found);
}

}  // namespace

std::span<const Entry> comparison_entries() {
  static constexpr Entry kEntries[] = {
      {"aten::eq.Tensor", equal<>},
      {"aten::eq.Scalar", equal<kRight>},
      {"aten::ne.Tensor", different<>},
      {"aten::ne.Scalar", different<kRight>},
      {"aten::lt.Tensor", ordered<"Less">},
      {"aten::lt.Scalar", ordered<"Less", kRight>},
      {"aten::le.Tensor", ordered<"LessOrEqual">},
      {"aten::le.Scalar", ordered<"LessOrEqual", kRight>},
      {"aten::gt.Tensor", ordered<"Greater">},
      {"aten::gt.Scalar", ordered<"Greater", kRight>},
      {"aten::ge.Tensor", ordered<"GreaterOrEqual">},
      {"aten::ge.Scalar", ordered<"GreaterOrEqual", kRight>},
      {"aten::isin.Tensor_Tensor", is_in<>},
      {"aten::isin.Tensor_Scalar", is_in<kRight>},
      {"aten::isin.Scalar_Tensor", is_in<Scalar::left>},
  };
  return kEntries;
}

}  // namespace heddle::torch_backend
