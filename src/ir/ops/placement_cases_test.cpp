#include <cmath>
#include <limits>

#include "ir/ops/cases.h"

namespace heddle::ir {

namespace {

using Is = std::vector<int64_t>;

Case function(std::string op, std::vector<double> x, std::vector<double> y) {
  const Shape shape = {static_cast<int64_t>(x.size())};
  return {std::move(op), {f32(shape, std::move(x))}, {}, {f32(shape, std::move(y))}};
}

void add_functions(std::vector<Case>& all) {
  all.push_back(function("Tan", {0, 1, -0.5}, {0, 1.55740772, -0.54630249}));
  all.push_back(function("Asin", {0, 1, -0.5}, {0, 1.57079633, -0.52359878}));
  all.push_back(function("Acos", {0, 1, -0.5}, {1.57079633, 0, 2.0943951}));
  all.push_back(function("Atan", {0, 1, -2}, {0, 0.78539816, -1.10714872}));
  all.push_back(function("Sinh", {0, 1, -2}, {0, 1.17520119, -3.62686041}));
  all.push_back(function("Cosh", {0, 1, -2}, {1, 1.54308063, 3.76219569}));
  all.push_back(function("Asinh", {0, 1, -2}, {0, 0.88137359, -1.44363548}));
  all.push_back(function("Acosh", {1, 2, 10}, {0, 1.3169579, 2.99322285}));
  all.push_back(function("Atanh", {0, 0.5, -0.9}, {0, 0.54930614, -1.47221949}));
}

void add_bits(std::vector<Case>& all) {
  const Sample x = i32({kB, 1}, {12, -1}), y = i32({2}, {10, 3});
  all.push_back({"BitwiseAnd", {x, y}, {}, {i32({kB, 2}, {8, 0, 10, 3})}});
  all.push_back({"BitwiseOr", {x, y}, {}, {i32({kB, 2}, {14, 15, -1, -1})}});
  all.push_back({"BitwiseXor", {x, y}, {}, {i32({kB, 2}, {6, 15, -11, -4})}});
  all.push_back({"BitwiseNot", {x}, {}, {i32({kB, 1}, {-13, 0})}});
  all.push_back({"BitwiseNot", {u8({2}, {0, 200})}, {}, {u8({2}, {255, 55})}});
  all.push_back({"BitShift",
                 {u8({kS}, {16, 4, 255}), u8({kS}, {1, 2, 8})},
                 {{"direction", text_of("RIGHT")}},
                 {u8({kS}, {8, 1, 0})}});
  all.push_back({"BitShift",
                 {u8({kS}, {16, 4, 255}), u8({1}, {1})},
                 {{"direction", text_of("LEFT")}},
                 {u8({kS}, {32, 8, 254})}});
  const Sample signed_bits = i32({6}, {-8, -8, -8, 8, 8, 1073741824}), by = i32({6}, {1, 32, -1, 2, 70, 1});
  all.push_back({"BitShift",
                 {signed_bits, by},
                 {{"direction", text_of("RIGHT")}},
                 {i32({6}, {-4, -1, -1, 2, 0, 536870912})}});
  all.push_back({"BitShift",
                 {signed_bits, by},
                 {{"direction", text_of("LEFT")}},
                 {i32({6}, {-16, 0, 0, 32, 0, -2147483648.0})}});
  all.push_back(
      {"BitCast", {f32({kB}, {1, -2})}, {{"to", text_of("i32")}}, {i32({kB}, {1065353216, -1073741824})}});
  all.push_back({"BitCast", {u8({kB}, {0, 9})}, {{"to", text_of("bool")}}, {flags({kB}, {0, 1})}});
}

void add_scatters(std::vector<Case>& all) {
  const Sample zeros = f32({kB, 3}, {1, 2, 3, 4, 5, 6});
  all.push_back({"ScatterElements",
                 {zeros, i64({kB, 2}, {2, 0, -1, 1}), f32({kB, 2}, {7, 8, 9, 10})},
                 {{"axis", i(1)}},
                 {f32({kB, 3}, {8, 2, 7, 4, 10, 9})}});
  all.push_back({"ScatterElements",
                 {zeros, i64({1, 2}, {1, 0}), f32({1, 2}, {10, 20})},
                 {{"reduction", text_of("add")}},
                 {f32({kB, 3}, {1, 22, 3, 14, 5, 6})}});
  all.push_back({"ScatterElements",
                 {zeros, i32({kB, 2}, {0, 0, 1, 1}), f32({kB, 2}, {2, 3, -1, 8})},
                 {{"axis", i(-1)}, {"reduction", text_of("mul")}},
                 {f32({kB, 3}, {6, 2, 3, 4, -40, 6})}});
  all.push_back({"ScatterElements",
                 {zeros, i64({kB, 2}, {0, 0, 1, 1}), f32({kB, 2}, {2, 3, -1, 8})},
                 {{"axis", i(1)}, {"reduction", text_of("max")}},
                 {f32({kB, 3}, {3, 2, 3, 4, 8, 6})}});
  all.push_back({"ScatterElements",
                 {i32({3}, {1, 2, 3}), i64({2}, {0, 0}), i32({2}, {-2, 3})},
                 {{"reduction", text_of("min")}},
                 {i32({3}, {-2, 2, 3})}});
  all.push_back({"ScatterND",
                 {zeros, i64({2, 1}, {1, 1}), f32({2, 3}, {7, 8, 9, 1, 1, 1})},
                 {{"reduction", text_of("add")}},
                 {f32({kB, 3}, {1, 2, 3, 12, 14, 16})}});
  all.push_back({"ScatterND",
                 {zeros, i64({kS, 2}, {0, 1, 1, -1, 0, 1}), f32({kS}, {7, 8, 9})},
                 {},
                 {f32({kB, 3}, {1, 9, 3, 4, 5, 8})}});
  all.push_back(
      {"CumProd", {f32({kB, 3}, {1, 2, 3, 4, 5, 6}), number(1)}, {}, {f32({kB, 3}, {1, 2, 6, 4, 20, 120})}});
  all.push_back({"CumProd",
                 {i32({3}, {2, 3, 4}), number(0)},
                 {{"exclusive", i(1)}, {"reverse", i(1)}},
                 {i32({3}, {12, 4, 1})}});
  all.push_back({"Pad",
                 {f32({kB, 3}, {1, 2, 3, 4, 5, 6}), numbers({0, 2, 0, 4})},
                 {{"mode", text_of("wrap")}},
                 {f32({kB, 9}, {2, 3, 1, 2, 3, 1, 2, 3, 1, 5, 6, 4, 5, 6, 4, 5, 6, 4})}});
}

Sample scales(std::vector<double> values) {
  const int64_t count = static_cast<int64_t>(values.size());
  return fixed(f32({count}, std::move(values)));
}

void add_resizes(std::vector<Case>& all) {
  const Sample row = f32({kB, 1, 2}, {1, 2, 3, 4});
  all.push_back({"Resize",
                 {row, none(), scales({1, 2, 2})},
                 {},
                 {f32({kB, 2, 4}, {1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4})}});
  all.push_back({"Resize",
                 {row, none(), none(), dims({kB, 1, 4})},
                 {{"mode", text_of("linear")}},
                 {f32({kB, 1, 4}, {1, 1.25, 1.75, 2, 3, 3.25, 3.75, 4})}});
  all.push_back({"Resize",
                 {row, none(), none(), numbers({3})},
                 {{"mode", text_of("linear")},
                  {"coordinate_transformation_mode", text_of("align_corners")},
                  {"axes", Is{-1}}},
                 {f32({kB, 1, 3}, {1, 1.5, 2, 3, 3.5, 4})}});
  all.push_back(
      {"Resize",
       {f32({kB * Dim(2)}, {1, 2, 3, 4}), none(), scales({0.5})},
       {{"coordinate_transformation_mode", text_of("asymmetric")}, {"nearest_mode", text_of("floor")}},
       {f32({kB}, {1, 3})}});
  all.push_back({"Resize",
                 {f32({1, 4}, {1, 2, 3, 4}), none(), scales({1, 2})},
                 {{"mode", text_of("cubic")}},
                 {f32({1, 8}, {0.89453125, 1.19140625, 1.66796875, 2.296875, 2.703125, 3.33203125, 3.80859375,
                               4.10546875})}});
  all.push_back({"Resize",
                 {f32({1, 4}, {1, 2, 3, 4}), none(), scales({1, 0.5})},
                 {{"mode", text_of("linear")}, {"antialias", i(1)}},
                 {f32({1, 2}, {1.625, 3.375})}});
  all.push_back({"Resize",
                 {u8({1, 2}, {0, 255}), none(), scales({1, 2})},
                 {{"mode", text_of("linear")}},
                 {u8({1, 4}, {0, 64, 191, 255})}});
  // Places beyond 64 bits are outside, too.
  all.push_back({"Resize",
                 {f32({2}, {1, 2}), fixed(f32({2}, {0, 1e30})), scales({1})},
                 {{"mode", text_of("linear")},
                  {"coordinate_transformation_mode", text_of("tf_crop_and_resize")},
                  {"extrapolation_value", 7.0}},
                 {f32({2}, {1, 7})}});
  all.push_back({"Resize",
                 {f32({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}), none(), none(), numbers({2, 2})},
                 {{"keep_aspect_ratio_policy", text_of("not_larger")}},
                 {f32({2, 1}, {1, 5})}});
  all.push_back({"Resize",
                 {f32({1, 3}, {1, 2, 3}), fixed(f32({4}, {0, 0, 1, 2})), none(), numbers({1, 3})},
                 {{"mode", text_of("linear")},
                  {"coordinate_transformation_mode", text_of("tf_crop_and_resize")},
                  {"extrapolation_value", 9.0}},
                 {f32({1, 3}, {1, 3, 9})}});
}

void add_sampling(std::vector<Case>& all) {
  const Sample image = f32({1, 1, 2, 2}, {1, 2, 3, 4});
  const Sample grid = f32({1, 1, 3, 2}, {-1, -1, 0, 0, 1, 0});  // x before y
  all.push_back({"GridSample", {image, grid}, {{"align_corners", i(1)}}, {f32({1, 1, 1, 3}, {1, 2.5, 3})}});
  all.push_back({"GridSample",
                 {image, f32({1, 1, 3, 2}, {0, 1, 0.5, 0.5, 1.5, 0})},
                 {{"places", i(1)}},
                 {f32({1, 1, 1, 3}, {3, 2.5, 1})}});
  all.push_back({"GridSample", {image, grid}, {}, {f32({1, 1, 1, 3}, {0.25, 2.5, 1.5})}});
  all.push_back(
      {"GridSample", {image, grid}, {{"padding_mode", text_of("border")}}, {f32({1, 1, 1, 3}, {1, 2.5, 3})}});
  all.push_back({"GridSample",
                 {f32({kB, 1, 3}, {1, 2, 3, 4, 5, 6}), f32({kB, 2, 1}, {-1.5, 0, 0.5, 1.5})},
                 {{"mode", text_of("nearest")}, {"padding_mode", text_of("reflection")}},
                 {f32({kB, 1, 2}, {1, 2, 6, 6})}});
  all.push_back({"RoiAlign",
                 {f32({1, 1, 2, 2}, {1, 2, 3, 4}), f32({kB, 4}, {0, 0, 2, 2, 0, 0, 1, 1}), i64({kB}, {0, 0})},
                 {{"sampling_ratio", i(1)}},
                 {f32({kB, 1, 1, 1}, {2.5, 1})}});
  // A box that is nowhere has no sample there; of one that goes far, most are outside the image.
  for (const double end : {1e12, 1e30, kInf}) {
    for (const char* mode : {"avg", "max"}) {
      all.push_back({"RoiAlign",
                     {f32({1, 1, 1, 2}, {-1, -2}), f32({1, 4}, {0, 0, end, 1}), i64({1}, {0})},
                     {{"mode", text_of(mode)}},
                     {f32({1, 1, 1, 1}, {0})}});
    }
  }
  for (const char* coordinates : {"half_pixel", "output_half_pixel"}) {
    all.push_back({"RoiAlign",
                   {f32({1, 1, 2, 2}, {1, 2, 3, 4}), f32({1, 4}, {kNaN, 0, kNaN, 2}), i64({1}, {0})},
                   {{"sampling_ratio", i(1)}, {"coordinate_transformation_mode", text_of(coordinates)}},
                   {f32({1, 1, 1, 1}, {0})}});
  }
  all.push_back({"RoiAlign",
                 {f32({1, 1, 0, 3}, {}), f32({1, 4}, {0, 0, 0, 0}), i64({1}, {0})},
                 {{"sampling_ratio", i(1)}},
                 {f32({1, 1, 1, 1}, {0})}});
  all.push_back({"RoiAlign",
                 {f32({1, 1, 2, 2}, {1, 2, 3, 4}), f32({1, 4}, {kNaN, 0, kNaN, 2}), i64({1}, {0})},
                 {},
                 {f32({1, 1, 1, 1}, {0})}});
  all.push_back({"Col2Im",
                 {f32({kB, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}), numbers({1, 3}), numbers({1, 2})},
                 {},
                 {f32({kB, 1, 1, 3}, {1, 5, 4, 5, 13, 8})}});
  all.push_back({"Det", {f32({kB, 2, 2}, {1, 2, 3, 4, 0, 1, 2, 7})}, {}, {f32({kB}, {-2, -2})}});
}

}  // namespace

std::vector<Case> placement_cases() {
  std::vector<Case> all;
  add_functions(all);
  add_bits(all);
  add_scatters(all);
  add_resizes(all);
  add_sampling(all);
  return all;
}

}  // namespace heddle::ir
