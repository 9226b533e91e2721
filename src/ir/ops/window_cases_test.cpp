#include "ir/ops/cases.h"

namespace heddle::ir {

namespace {

Sample bytes(DType dtype, Shape shape, std::vector<double> values) {
  return {dtype, std::move(shape), std::move(values), {}};
}
Sample i8(Shape shape, std::vector<double> values) {
  return bytes(DType::kI8, std::move(shape), std::move(values));
}

void add_transposed(std::vector<Case>& all) {
  const Sample x = f32({kB, 1, 2}, {1, 2, 3, 4}), w = f32({1, 1, 2}, {1, 10});
  const Sample row = f32({1, 1, 2}, {1, 2}), wide = f32({1, 1, 3}, {1, 10, 100});
  const auto add = [&](const Sample& in, const Sample& weight, Attributes attributes, Sample out) {
    all.push_back({"ConvTranspose", {in, weight}, std::move(attributes), {std::move(out)}});
  };
  add(x, w, {}, f32({kB, 1, 3}, {1, 12, 20, 3, 34, 40}));
  add(x, w, {{"strides", Ints{2}}}, f32({kB, 1, 4}, {1, 10, 2, 20, 3, 30, 4, 40}));
  add(f32({1, 1, kS}, {1, 2, 3}), w, {{"strides", Ints{2}}}, f32({1, 1, kS * Dim(2)}, {1, 10, 2, 20, 3, 30}));
  add(x, w, {{"pads", Ints{1, 0}}}, f32({kB, 1, 2}, {12, 20, 34, 40}));
  add(row, w, {{"strides", Ints{2}}, {"output_padding", Ints{1}}}, f32({1, 1, 5}, {1, 10, 2, 20, 0}));
  add(x, w, {{"dilations", Ints{2}}}, f32({kB, 1, 4}, {1, 2, 10, 20, 3, 4, 30, 40}));
  add(row, w, {{"strides", Ints{2}}, {"output_shape", Ints{3}}}, f32({1, 1, 3}, {10, 2, 20}));
  add(row, w, {{"strides", Ints{2}}, {"output_shape", Ints{3}}, {"auto_pad", text_of("SAME_UPPER")}},
      f32({1, 1, 3}, {1, 10, 2}));
  add(row, wide, {{"strides", Ints{2}}, {"auto_pad", text_of("SAME_UPPER")}},
      f32({1, 1, 4}, {1, 10, 102, 20}));
  add(row, wide, {{"strides", Ints{2}}, {"auto_pad", text_of("SAME_LOWER")}},
      f32({1, 1, 4}, {10, 102, 20, 200}));
  // A kernel shorter than the stride leaves gaps, and what lies beyond the last input is empty.
  add(row, f32({1, 1, 1}, {7}), {{"strides", Ints{2}}, {"auto_pad", text_of("SAME_UPPER")}},
      f32({1, 1, 4}, {7, 0, 14, 0}));
  all.push_back({"ConvTranspose",
                 {f32({1, 2, 2}, {1, 2, 3, 4}), f32({2, 1, 1}, {1, -1}), f32({2}, {10, 2})},
                 {{"group", i(2)}, {"activation", text_of("relu")}},
                 {f32({1, 2, 2}, {11, 12, 0, 0})}});
  add(f32({1, 1, 1, 2}, {1, 2}), f32({1, 2, 2, 1}, {1, 10, 100, 1000}), {},
      f32({1, 2, 2, 2}, {1, 2, 10, 20, 100, 200, 1000, 2000}));
}

void add_pools(std::vector<Case>& all) {
  const Sample plane = f32({1, 1, 2, 4}, {1, 5, 2, 3, 4, 0, 6, 7});
  const Attributes square = {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}};
  Attributes columns = square;
  columns.set("storage_order", i(1));
  all.push_back({"MaxPool", {plane}, square, {f32({1, 1, 1, 2}, {5, 7}), i64({1, 1, 1, 2}, {1, 7})}});
  all.push_back({"MaxPool", {plane}, columns, {f32({1, 1, 1, 2}, {5, 7}), i64({1, 1, 1, 2}, {2, 7})}});
  all.push_back({"MaxPool",
                 {f32({kB, 1, 3}, {1, 2, 3, 9, 8, 7})},
                 {{"kernel_shape", Ints{2}}},
                 {f32({kB, 1, 2}, {2, 3, 9, 8}), i64({kB, 1, 2}, {1, 2, 3, 4})}});
  all.push_back(
      {"LpPool", {f32({kB, 1, 2}, {3, -4, 6, 8})}, {{"kernel_shape", Ints{2}}}, {f32({kB, 1, 1}, {5, 10})}});
  all.push_back({"LpPool",
                 {f32({kB, 1, 2}, {3, -4, 6, 8})},
                 {{"kernel_shape", Ints{2}}, {"p", i(1)}, {"pads", Ints{1, 0}}},
                 {f32({kB, 1, 2}, {3, 7, 6, 14})}});
  const Sample picked = f32({1, 1, 1, 2}, {5, 7}), places = i64({1, 1, 1, 2}, {1, 7});
  all.push_back({"MaxUnpool", {picked, places}, square, {f32({1, 1, 2, 4}, {0, 5, 0, 0, 0, 0, 0, 7})}});
  all.push_back({"MaxUnpool",
                 {picked, places, numbers({1, 1, 3, 5})},
                 square,
                 {f32({1, 1, 3, 5}, {0, 5, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0})}});
}

void add_integers(std::vector<Case>& all) {
  const Sample a = u8({kB, 3}, {11, 7, 3, 10, 6, 2});
  all.push_back({"MatMulInteger",
                 {a, u8({3, 2}, {1, 4, 2, 5, 3, 6}), u8({}, {12}), u8({1}, {0})},
                 {},
                 {i32({kB, 2}, {-38, -83, -44, -98})}});
  all.push_back({"MatMulInteger",
                 {u8({2, 2}, {1, 2, 3, 4}), i8({2, 2}, {1, -2, 3, 4}), u8({2, 1}, {1, 3}), i8({2}, {1, 2})},
                 {},
                 {i32({2, 2}, {2, 2, 2, 2})}});
  all.push_back({"MatMulInteger", {i8({2}, {-128, 127}), i8({2}, {-128, 127})}, {}, {i32({}, {32513})}});
  all.push_back({"MatMulInteger",
                 {u8({kB, 1, 2}, {1, 2, 3, 4}), u8({kB, 2, 1}, {1, 1, 2, 2})},
                 {},
                 {i32({kB, 1, 1}, {3, 14})}});
  const Sample x = u8({1, 1, 3, 3}, {2, 3, 4, 5, 6, 7, 8, 9, 10}), ones = u8({1, 1, 2, 2}, {1, 1, 1, 1});
  all.push_back({"ConvInteger", {x, ones, u8({}, {1})}, {}, {i32({1, 1, 2, 2}, {12, 16, 24, 28})}});
  all.push_back({"ConvInteger",
                 {x, ones, u8({}, {1})},
                 {{"pads", Ints{1, 1, 0, 0}}, {"strides", Ints{2, 2}}},
                 {i32({1, 1, 2, 2}, {1, 5, 11, 28})}});
  all.push_back({"ConvInteger",
                 {u8({kB, 1, 1}, {5, 6}), i8({2, 1, 1}, {3, 1}), u8({}, {4}), i8({2, 1, 1}, {1, 2})},
                 {},
                 {i32({kB, 2, 1}, {2, -1, 4, -2})}});
}

}  // namespace

std::vector<Case> window_cases() {
  std::vector<Case> all;
  add_transposed(all);
  add_pools(all);
  add_integers(all);
  return all;
}

}  // namespace heddle::ir
