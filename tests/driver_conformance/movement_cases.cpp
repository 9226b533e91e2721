#include "op_cases_fixture.h"

namespace heddle::conformance {

In ints(std::vector<int64_t> values) {
  const Extents extents{static_cast<int64_t>(values.size())};
  return {extents, 0, 0, DType::kI64, true, std::move(values), false};
}
In scalar(int64_t value) { return {{}, 0, 0, {}, true, Is{value}, false}; }
In scalar_i64(int64_t value) { return {{}, 0, 0, DType::kI64, true, Is{value}, false}; }

namespace {

void add_shape_cases(std::vector<Case>& cases) {
  cases.push_back({"Shape", {T({3, 0, 5})}, {}, kAll});
  cases.push_back({"Shape", {T({3, 4, 5})}, {{"start", I{1}}, {"end", I{-1}}}, kF32});
  cases.push_back({"Size", {T({3, 4, 5})}, {}, kF32});
  cases.push_back({"ConstantOfShape",
                   {ints({2, 3})},
                   {{"value", ir::Tensor::scalar(DType::kI32, 7).reshaped({1})}},
                   kF32});
  cases.push_back({"Range", {scalar_i64(2), scalar_i64(11), scalar_i64(3)}, {}, kF32});
  cases.push_back({"Reshape", {T({2, 3, 4}), ints({0, -1})}, {}, kAll});
  cases.push_back({"Reshape", {T({0, 3}), ints({3, 0})}, {{"allowzero", I{1}}}, kAll});
  cases.push_back({"Squeeze", {T({1, 3, 1, 2}), ints({0, -2})}, {}, kAll});
  cases.push_back({"Unsqueeze", {T({3, 2}), ints({0, 3})}, {}, kAll});
  cases.push_back({"Flatten", {T({2, 3, 4})}, {{"axis", I{2}}}, kAll});
  cases.push_back({"Expand", {T({3, 1}), ints({2, 1, 4})}, {}, kAll});
  cases.push_back({"Expand", {T({1, 3}), ints({0, 3})}, {}, kAll});
}

}  // namespace

void add_movement_cases(std::vector<Case>& cases) {
  add_shape_cases(cases);
  cases.push_back({"Transpose", {T({5, 7})}, {{"perm", Is{1, 0}}}, kAll});
  cases.push_back({"Transpose", {T({2, 3, 4, 5})}, {{"perm", Is{0, 2, 1, 3}}}, kAll});
  cases.push_back({"Transpose", {T({33, 2, 65})}, {{"perm", Is{2, 0, 1}}}, kAll});
  cases.push_back({"Transpose", {T({2, 0, 3})}, {}, kF32});
  cases.push_back({"Concat", {T({2, 3}), T({2, 1}), T({2, 4})}, {{"axis", I{1}}}, kAll});
  cases.push_back({"Concat", {T({2, 3}), T({0, 3})}, {{"axis", I{0}}}, kAll});
  cases.push_back({"Split", {T({2, 7}), ints({3, 0, 4})}, {{"axis", I{-1}}}, kAll, 3});
  cases.push_back({"Split", {T({7, 2})}, {{"axis", I{0}}, {"num_outputs", I{3}}}, kAll, 3});
  cases.push_back(
      {"Slice", {T({6, 7}), ints({1, -1}), ints({5, -8}), ints({0, 1}), ints({2, -2})}, {}, kAll});
  // Nothing, by a step that leaves its axis at once.
  cases.push_back(
      {"Slice", {T({6, 7}), ints({4, -1}), ints({4, -8}), ints({0, 1}), ints({1, -INT64_MAX})}, {}, kAll});
  cases.push_back({"Gather", {T({5, 4}), index({2, 3}, -5, 5)}, {{"axis", I{0}}}, kAll});
  cases.push_back({"Gather", {T({3, 5, 2}), index({}, 0, 5)}, {{"axis", I{1}}}, kAll});
  cases.push_back({"Gather", {weight({50, 33}), index({4, 0}, 0, 1)}, {}, kFloats});
  cases.push_back({"GatherElements", {T({4, 5}), index({2, 5}, -4, 4)}, {{"axis", I{0}}}, kAll});
  cases.push_back({"GatherND", {T({4, 5, 3}), index({2, 6, 2}, 0, 4)}, {}, kAll});
  cases.push_back({"GatherND", {T({2, 5, 3}), index({2, 4, 1}, 0, 5)}, {{"batch_dims", I{1}}}, kAll});
  cases.push_back(
      {"Pad", {T({3, 4}), ints({1, 0, 2, 3}), scalar(1)}, {{"mode", std::string("constant")}}, kAll});
  cases.push_back({"Pad", {T({5, 4}), ints({2, 3, 1, 0})}, {{"mode", std::string("reflect")}}, kAll});
  cases.push_back(
      {"Pad", {T({3, 4}), ints({2, 5}), none(), ints({1})}, {{"mode", std::string("edge")}}, kAll});
  cases.push_back({"Tile", {T({2, 3}), ints({3, 2})}, {}, kAll});
  cases.push_back({"Tile", {T({2, 3}), ints({0, 2})}, {}, kAll});
  cases.push_back({"Trilu", {T({2, 5, 6})}, {}, kAll});
  cases.push_back({"Trilu", {T({5, 6}), scalar_i64(-1)}, {{"upper", I{0}}}, kAll});
  cases.push_back({"OneHot", {index({3, 4}, -5, 5), scalar_i64(5), T({2})}, {{"axis", I{1}}}, kAll});
  cases.push_back({"OneHot", {T({3, 4}, -9, 9), scalar_i64(6), T({2})}, {{"axis", I{0}}}, kFloats});
  cases.push_back({"NonZero", {T({3, 3})}, {}, kF32});
}

void add_reduction_cases(std::vector<Case>& cases) {
  for (const char* op :
       {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2", "ReduceSumSquare"}) {
    const std::string_view name = op;
    const std::vector<DType>& dtypes = name == "ReduceMax" || name == "ReduceMin" ? kSigned : kFloats;
    const double low = name == "ReduceProd" ? 0.8 : -2, high = name == "ReduceProd" ? 1.2 : 2;
    cases.push_back({name, {T({4, 37}, low, high), ints({1})}, {}, dtypes});
    cases.push_back({name, {T({4, 37}, low, high), ints({0})}, {{"keepdims", I{0}}}, dtypes});
    cases.push_back({name, {T({3, 4, 5, 2}, low, high), ints({-1, 1})}, {}, dtypes});
    cases.push_back({name, {T({3, 7}, low, high)}, {}, dtypes});
    cases.push_back({name, {T({3, 7}, low, high)}, {{"noop_with_empty_axes", I{1}}}, dtypes});
    cases.push_back({name, {T({3, 0, 4}, low, high), ints({2})}, {}, dtypes});
    for (const int64_t length : {384, 1030})
      cases.push_back(
          {name, {T({5, length}, low < 0 ? low : 0.99, low < 0 ? high : 1.01), ints({1})}, {}, dtypes});
  }
  cases.push_back({"ReduceSum", {T({2, 0, 4}), ints({1})}, {}, kFloats});
  cases.push_back({"ReduceSum", {T({5, 4}, 0, 9), ints({1})}, {}, {DType::kI32, DType::kI64}});
  for (const char* op : {"ArgMax", "ArgMin"}) {
    cases.push_back({op, {T({3, 5000}, -9, 9)}, {{"axis", I{1}}}, kSigned});
    cases.push_back({op, {T({700, 3}, -9, 9)}, {{"axis", I{0}}, {"select_last_index", I{1}}}, kSigned});
    cases.push_back({op, {T({5, 9}, -99, 99)}, {{"axis", I{1}}}, kSigned});
    cases.push_back(
        {op, {T({5, 9}, 0, 3)}, {{"axis", I{0}}, {"keepdims", I{0}}, {"select_last_index", I{1}}}, kSigned});
  }
  cases.push_back({"TopK", {T({4, 21}, -99, 99), ints({3})}, {{"axis", I{1}}}, kFloats, 2});
  cases.push_back({"TopK", {T({9, 3}, -99, 99), ints({4})}, {{"axis", I{0}}, {"largest", I{0}}}, kFloats, 2});
  // Long rows, chosen ones that are many, and ties that only their places decide.
  cases.push_back({"TopK", {T({2, 5000}, -99, 99), ints({100})}, {}, kSigned, 2});
  cases.push_back({"TopK", {T({2, 9000}, -99, 99), ints({4500})}, {{"largest", I{0}}}, kSigned, 2});
  cases.push_back({"TopK", {T({1, 70000}, -2, 2), ints({300})}, {}, {DType::kI8}, 2});
  cases.push_back(
      {"TopK", {T({600, 2}, 1, 1), ints({600})}, {{"axis", I{0}}}, {DType::kF32, DType::kI64}, 2});
  cases.push_back({"CumSum", {T({3, 9}), scalar_i64(1)}, {}, kFloats});
  cases.push_back({"CumSum",
                   {T({4, 3}, 0, 5), scalar_i64(0)},
                   {{"exclusive", I{1}}, {"reverse", I{1}}},
                   {DType::kF32, DType::kI32, DType::kI64}});
}

}  // namespace heddle::conformance
