#include "op_cases_fixture.h"

namespace heddle::conformance {

namespace {

std::string word(const char* name) { return name; }

In bytes(Extents extents, double low, double high) {
  return {extents, low, high, DType::kU8, false, {}, false};
}

void add_bit_cases(std::vector<Case>& cases) {
  const std::vector<DType> integers = {DType::kI8, DType::kU8, DType::kI16, DType::kI32, DType::kI64};
  for (const char* op : {"BitwiseAnd", "BitwiseOr", "BitwiseXor"})
    cases.push_back({op, {T({3, 40}, 0, 100), T({40}, 0, 100)}, {}, integers});
  cases.push_back({"BitwiseNot", {T({700}, 0, 100)}, {}, integers});
  for (const char* direction : {"LEFT", "RIGHT"}) {
    cases.push_back({"BitShift",
                     {bytes({3, 5}, 0, 255), bytes({5}, 0, 9)},
                     {{"direction", word(direction)}},
                     {DType::kU8}});
    cases.push_back(
        {"BitShift", {T({3, 40}, -100, 100), T({40}, -3, 70)}, {{"direction", word(direction)}}, integers});
  }
  cases.push_back({"BitCast", {T({3, 5})}, {{"to", word("i32")}}, kF32});
  cases.push_back({"BitCast", {bytes({600}, 0, 3)}, {{"to", word("bool")}}, {DType::kU8}});
  for (const char* op : {"Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Atanh"})
    cases.push_back({op, {T({5, 130}, -0.9, 0.9)}});
  cases.push_back({"Acosh", {T({5, 130}, 1, 9)}});
}

void add_scatter_cases(std::vector<Case>& cases) {
  for (const char* reduction : {"none", "add", "mul", "max", "min"}) {
    const bool moves = reduction[0] == 'n';
    const ir::Attributes rows = {{"axis", I{1}}, {"reduction", word(reduction)}};
    cases.push_back({"ScatterElements",
                     {T({4, 5, 3}), index({3, 7, 2}, -5, 4), T({3, 7, 2})},
                     rows,
                     moves ? kAll : kNumbers});
    const ir::Attributes plain = {{"reduction", word(reduction)}};
    cases.push_back({"ScatterElements", {T({6}), index({9}, -6, 5), T({9})}, plain, kNumbers});
    cases.push_back(
        {"ScatterND", {T({4, 5, 3}), index({6, 2}, -4, 3), T({6, 3})}, plain, moves ? kAll : kNumbers});
    cases.push_back({"ScatterND", {T({4, 5}), index({2, 3, 1}, -4, 3), T({2, 3, 5})}, plain, kNumbers});
    // So many updates that each place has several, and places are shared out among threads.
    const std::vector<DType> two = {DType::kF32, DType::kI32};
    cases.push_back(
        {"ScatterElements", {T({1000}), index({3000}, -1000, 999), T({3000}, 0.5, 1.5)}, plain, two});
    cases.push_back(
        {"ScatterElements", {T({70, 3}), index({300, 2}, -70, 69), T({300, 2}, 0.5, 1.5)}, plain, two});
    cases.push_back(
        {"ScatterND", {T({11, 9, 7}), index({400, 2}, -9, 8), T({400, 7}, 0.5, 1.5)}, plain, two});
  }
  cases.push_back({"ScatterElements", {T({4, 5}), index({0, 5}, 0, 1), T({0, 5})}, {{"axis", I{1}}}, kAll});
  cases.push_back({"CumProd", {T({3, 5, 4}, 0.5, 1.5), scalar_i64(1)}, {}, kNumbers});
  cases.push_back(
      {"CumProd", {T({3, 5}, 0.5, 1.5), scalar_i64(-1)}, {{"reverse", I{1}}, {"exclusive", I{1}}}, kNumbers});
  cases.push_back({"Pad", {T({3, 4, 5}), ints({0, 6, 2, 1, 0, 11})}, {{"mode", word("wrap")}}, kAll});
}

void add_resize_cases(std::vector<Case>& cases) {
  const auto sized = [&](Extents x, Is sizes, ir::Attributes attributes, const std::vector<DType>& dtypes) {
    cases.push_back(
        {"Resize", {T(x), none(), none(), ints(std::move(sizes))}, std::move(attributes), dtypes});
  };
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    const std::vector<DType> dtypes = mode[0] == 'n' ? kAll : kFloats;
    for (const char* coordinates :
         {"half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric"}) {
      const ir::Attributes attributes = {{"mode", word(mode)},
                                         {"coordinate_transformation_mode", word(coordinates)}};
      sized({2, 3, 5, 7}, {2, 3, 11, 13}, attributes, dtypes);
      sized({2, 3, 9, 8}, {2, 3, 4, 3}, attributes, kF32);
    }
    const ir::Attributes attributes = {{"mode", word(mode)}};
    sized({2, 3, 40, 50}, {2, 3, 80, 100}, attributes, kF32);     // split between threads
    sized({2, 5, 6, 3}, {2, 9, 11, 3}, attributes, dtypes);       // channels at the end
    sized({1, 2, 3, 4, 5}, {1, 2, 6, 5, 9}, attributes, dtypes);  // volumes
    sized({2, 3, 7}, {2, 3, 7}, attributes, kF32);                // nothing to do
    sized({2, 3, 7}, {2, 5, 7}, attributes, kF32);
    sized({6}, {13}, attributes, kF32);
    sized({2, 3, 0, 7}, {2, 3, 0, 7}, attributes, kF32);
    if (mode[0] == 'n') continue;
    const ir::Attributes smooth = {{"mode", word(mode)}, {"antialias", I{1}}, {"exclude_outside", I{1}}};
    sized({2, 3, 17, 19}, {2, 3, 5, 8}, smooth, kFloats);
    sized({2, 3, 5, 7}, {2, 3, 11, 3}, smooth, kF32);
  }
  sized({1, 1, 3, 4}, {1, 1, 6, 8}, {{"mode", word("linear")}}, {DType::kU8, DType::kI32});
}

void add_sampling_cases(std::vector<Case>& cases) {
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    for (const char* padding : {"zeros", "border", "reflection"}) {
      for (I corners : {0, 1}) {
        const ir::Attributes attributes = {
            {"mode", word(mode)}, {"padding_mode", word(padding)}, {"align_corners", corners}};
        cases.push_back({"GridSample", {T({2, 3, 5, 7}), T({2, 9, 11, 2}, -1.6, 1.6)}, attributes, kF32});
        cases.push_back(
            {"GridSample", {T({2, 2, 3, 4, 5}), T({2, 2, 3, 7, 3}, -1.4, 1.4)}, attributes, kF32});
      }
    }
  }
  cases.push_back({"GridSample", {T({2, 3, 5, 7}), f32s({2, 4, 4, 2})}, {}, {DType::kF64}});
  cases.push_back({"GridSample", {T({2, 3, 5, 7}), T({2, 9, 11, 2}, -1.5, 7)}, {{"places", I{1}}}, kF32});
  for (const char* mode : {"avg", "max"}) {
    cases.push_back(
        {"RoiAlign",
         {T({2, 3, 8, 9}), T({4, 4}, 0, 7), index({4}, 0, 1)},
         {{"mode", word(mode)}, {"output_height", I{2}}, {"output_width", I{3}}, {"sampling_ratio", I{2}}}});
  }
  cases.push_back({"Col2Im",
                   {T({2, 12, 6}), ints({4, 5}), ints({2, 3})},
                   {{"strides", Is{2, 1}}, {"pads", Is{0, 0, 0, 0}}},
                   kNumbers});
  cases.push_back({"Det", {T({3, 4, 4})}});
  cases.push_back({"Det", {T({2, 17, 17}, 0, 1)}, {}, {DType::kF64}});
  cases.push_back({"Det", {T({1, 1})}});
  cases.push_back({"Det", {T({2, 3, 3}, 1, 1)}, {}, kF32});  // it has no inverse
}

}  // namespace

void add_placement_cases(std::vector<Case>& cases) {
  add_bit_cases(cases);
  add_scatter_cases(cases);
  add_resize_cases(cases);
  add_sampling_cases(cases);
}

}  // namespace heddle::conformance
