// selection.cpp: operators whose results are elements of their operands: extremes, bounds, choices.
#include "term.h"

namespace heddle::torch_backend {
namespace {

// A NaN loses against a number.
template <Term (*f)(const Term&, const Term&)>
Term of_numbers(const Term& a, const Term& b) {
  if (!a.real()) return f(a, b);
  return select(is_nan(a), b, select(is_nan(b), a, f(a, b)));
}

// self, min, max; either may be None. A NaN anywhere stays; max wins over min.
template <Term (*low)(Call&, int), Term (*high)(Call&, int)>
Results clamp(Call& call) {
  Term x = operand(call, 0);
  if (call.has(1)) x = greater(x, low(call, 1));
  if (call.has(2)) x = lesser(x, high(call, 2));
  return Value(x);
}

Results clamp_min(Call& call) { return Value(greater(operand(call, 0), least(call, 1))); }
Results clamp_max(Call& call) { return Value(lesser(operand(call, 0), greatest(call, 1))); }

Results where(Call& call) {
  const DType dtype = call.result_dtype();
  return Value(
      select(given(call, 0).cast(DType::boolean), given(call, 1).cast(dtype), given(call, 2).cast(dtype)));
}

Results masked_fill_scalar(Call& call) {
  const Term x = given(call, 0);
  return Value(select(given(call, 1).cast(DType::boolean), Term(call, call.scalar(2, x.dtype())), x));
}

Results masked_fill_tensor(Call& call) {
  const Term x = given(call, 0);
  return Value(select(given(call, 1).cast(DType::boolean), given(call, 2).cast(x.dtype()), x));
}

}  // namespace

std::span<const Entry> selection_entries() {
  static constexpr Entry kEntries[] = {
      {"aten::maximum", of_operands<greater>},
      {"aten::minimum", of_operands<lesser>},
      {"aten::fmax", of_operands<of_numbers<greater>>},
      {"aten::fmin", of_operands<of_numbers<lesser>>},
      {"aten::clamp", clamp<least, greatest>},
      {"aten::clamp.Tensor", clamp<operand, operand>},
      {"aten::clamp_min", clamp_min},
      {"aten::clamp_min.Tensor", of_operands<greater>},
      {"aten::clamp_max", clamp_max},
      {"aten::clamp_max.Tensor", of_operands<lesser>},
      {"aten::where.self", where},
      {"aten::masked_fill.Scalar", masked_fill_scalar},
      {"aten::masked_fill.Tensor", masked_fill_tensor},
  };
  return kEntries;
}

}  // namespace heddle::torch_backend
