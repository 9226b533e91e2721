// logic.cpp: operators on truth values and on bits.
#include "term.h"

namespace heddle::torch_backend {
namespace {

// On bools the bit operators are the logical ones.
template <Name op, Name bits>
Term bitwise(const Term& a, const Term& b) {
  return a.with(a.boolean() ? op.text : bits.text, b);
}

template <Name direction>
Term shifted(const Term& a, const Term& b) {
  return a.with("BitShift", b, {{"direction", std::string(direction.text)}});
}

template <Name op>
Results logical(Call& call) {
  return Value(given(call, 0).cast(DType::boolean).with(op.text, given(call, 1).cast(DType::boolean)));
}

constexpr auto kAnd = bitwise<"And", "BitwiseAnd">;
constexpr auto kOr = bitwise<"Or", "BitwiseOr">;
constexpr auto kXor = bitwise<"Xor", "BitwiseXor">;
constexpr auto kUp = shifted<"LEFT">;
constexpr auto kDown = shifted<"RIGHT">;

}  // namespace

std::span<const Entry> logic_entries() {
  static constexpr Entry kEntries[] = {
      {"aten::bitwise_and.Tensor", of_operands<kAnd>},
      {"aten::bitwise_and.Scalar", of_operands<kAnd, kRight>},
      {"aten::bitwise_and.Scalar_Tensor", of_operands<kAnd, kLeft>},
      {"aten::bitwise_or.Tensor", of_operands<kOr>},
      {"aten::bitwise_or.Scalar", of_operands<kOr, kRight>},
      {"aten::bitwise_or.Scalar_Tensor", of_operands<kOr, kLeft>},
      {"aten::bitwise_xor.Tensor", of_operands<kXor>},
      {"aten::bitwise_xor.Scalar", of_operands<kXor, kRight>},
      {"aten::bitwise_xor.Scalar_Tensor", of_operands<kXor, kLeft>},
      {"aten::bitwise_left_shift.Tensor", of_operands<kUp>},
      {"aten::bitwise_left_shift.Tensor_Scalar", of_operands<kUp, kRight>},
      {"aten::bitwise_left_shift.Scalar_Tensor", of_operands<kUp, kLeft>},
      {"aten::bitwise_right_shift.Tensor", of_operands<kDown>},
      {"aten::bitwise_right_shift.Tensor_Scalar", of_operands<kDown, kRight>},
      {"aten::bitwise_right_shift.Scalar_Tensor", of_operands<kDown, kLeft>},
      {"aten::__lshift__.Tensor", of_operands<kUp>},
      {"aten::__lshift__.Scalar", of_operands<kUp, kRight>},
      {"aten::__rshift__.Tensor", of_operands<kDown>},
      {"aten::__rshift__.Scalar", of_operands<kDown, kRight>},
      {"aten::logical_and", logical<"And">},
      {"aten::logical_or", logical<"Or">},
      {"aten::logical_xor", logical<"Xor">},
  };
  return kEntries;
}

}  // namespace heddle::torch_backend
