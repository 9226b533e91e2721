#include "ir/ops/cases.h"

namespace heddle::ir {

namespace {

Case reshape(Shape from, std::vector<Dim> wanted, Shape to, Attributes attributes = {}) {
  return {"Reshape",
          {f32(std::move(from), kSix), dims(std::move(wanted))},
          std::move(attributes),
          {f32(std::move(to), kSix)}};
}

}  // namespace

std::vector<Case> shape_cases() {
  const Sample x = f32({kB, 3}, kSix);
  std::vector<Case> all = {
      {"Shape", {x}, {}, {dims({kB, 3})}},
      {"Shape", {x}, {{"start", i(-1)}}, {dims({3})}},
      {"Shape", {x}, {{"start", i(0)}, {"end", i(1)}}, {dims({kB})}},
      {"Size", {x}, {}, {{DType::kI64, {}, {}, {kB * Dim(3)}}}},
      {"ConstantOfShape", {dims({kB, 2})}, {}, {f32({kB, 2}, {0, 0, 0, 0})}},
      {"ConstantOfShape", {dims({2})}, {{"value", Tensor::of_i64({7})}}, {dims({7, 7})}},
      {"Range", {number(2), number(9), number(3)}, {}, {dims({2, 5, 8})}},
      {"Range", {number(3), number(0), number(-2)}, {}, {dims({3, 1})}},
      {"Range", {number(3), number(3), number(1)}, {}, {i64({0}, {})}},
      {"Range", {number(0), {DType::kI64, {}, {}, {kS}}, number(1)}, {}, {i64({kS}, {0, 1, 2})}},
      {"Range",
       {{DType::kI64, {}, {}, {kB}}, {DType::kI64, {}, {}, {kB + 2}}, number(1)},
       {},
       {dims({kB, kB + 1})}},
      {"Range",
       {fixed(f32({}, {0})), fixed(f32({}, {1})), fixed(f32({}, {0.4}))},
       {},
       {f32({3}, {0, 0.4, 0.8})}},
      reshape({kB, 3}, {3, kB}, {3, kB}),
      reshape({kB, 3}, {-1}, {kB * Dim(3)}),
      reshape({kB, 3}, {0, 3, 1}, {kB, 3, 1}),
      reshape({kB, 3}, {0, -1}, {kB, 3}),
      reshape({kB * kS}, {kB, -1}, {kB, kS}),
      reshape({kB, kS}, {1, kB * kS}, {1, kB * kS}),
      reshape({kB * Dim(3)}, {-1, 3}, {kB, 3}),
      {"Reshape", {f32({0, 3}, {}), numbers({0, -1})}, {}, {f32({0, 3}, {})}},
      {"Reshape", {f32({0, 3}, {}), numbers({3, 0})}, {{"allowzero", i(1)}}, {f32({3, 0}, {})}},
      {"Reshape", {dims({kB, 3}), numbers({2, 1})}, {}, {{DType::kI64, {2, 1}, {}, {kB, 3}}}},
      {"Squeeze", {f32({1, kB, 1}, {1, 2}), numbers({0, -1})}, {}, {f32({kB}, {1, 2})}},
      {"Squeeze", {f32({1, 2, 1}, {1, 2})}, {}, {f32({2}, {1, 2})}},
      {"Squeeze", {dims({kB}), numbers({0})}, {}, {{DType::kI64, {}, {}, {kB}}}},
      {"Unsqueeze", {f32({kB}, {1, 2}), numbers({0, -1})}, {}, {f32({1, kB, 1}, {1, 2})}},
      {"Unsqueeze", {{DType::kI64, {}, {}, {kS}}, numbers({0})}, {}, {dims({kS})}},
      {"Flatten", {f32({kB, 3, 1}, kSix)}, {}, {f32({kB, 3}, kSix)}},
      {"Flatten", {f32({kB, kS}, kSix)}, {{"axis", i(0)}}, {f32({1, kB * kS}, kSix)}},
      {"Flatten", {f32({kB, kS}, kSix)}, {{"axis", i(-1)}}, {f32({kB, kS}, kSix)}},
      {"Expand", {f32({kB, 1}, {1, 2}), dims({1, kS})}, {}, {f32({kB, kS}, {1, 1, 1, 2, 2, 2})}},
      {"Expand", {dims({kB}), numbers({2})}, {}, {dims({kB, kB})}},
  };
  return all;
}

}  // namespace heddle::ir
