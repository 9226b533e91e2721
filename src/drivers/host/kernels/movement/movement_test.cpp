#include <limits>

#include "drivers/host/kernels/kernel_check_fixture.h"

namespace heddle::host {
namespace {

using ir::Attributes;
using ir::DType;
using ir::Extents;
using ir::Tensor;

using Ints = std::vector<int64_t>;

Check with_constants(std::vector<size_t> constants, size_t outputs = 1) {
  Check check;
  check.constants = std::move(constants);
  check.outputs = outputs;
  check.relative = check.absolute = 0;
  return check;
}

Tensor ints(const Ints& values, DType dtype = DType::kI64) {
  return Tensor::of(dtype, {static_cast<int64_t>(values.size())}, std::span<const int64_t>(values));
}

constexpr DType kSizes[] = {DType::kU8, DType::kF16, DType::kF32, DType::kI64};

TEST_CASE("host kernels: Transpose in tiles and in runs, for every element size") {
  const std::vector<std::pair<Extents, Ints>> cases = {
      {{5}, {0}},
      {{3, 5}, {1, 0}},
      {{33, 65}, {1, 0}},
      {{128, 300}, {1, 0}},
      {{2, 7, 3, 32}, {0, 2, 1, 3}},
      {{2, 3, 40, 50}, {0, 1, 3, 2}},
      {{4, 37, 5, 41}, {3, 0, 2, 1}},
      {{6, 5, 4, 3}, {3, 2, 1, 0}},
      {{0, 4, 3}, {2, 1, 0}},
      {{1, 64, 1, 70}, {3, 0, 1, 2}},
      {{2, 3, 2, 3, 2, 3, 2, 3}, {7, 6, 5, 4, 3, 2, 1, 0}},
      {{70, 5, 90}, {2, 1, 0}},
      {{3, 224, 224}, {1, 2, 0}},
      {{9, 2, 4}, {0, 2, 1}},
  };
  for (DType dtype : kSizes) {
    for (const auto& [shape, perm] : cases)
      check_node("Transpose", {random_tensor(dtype, shape, 0, 99)}, {{"perm", perm}});
    check_node("Transpose", {random_tensor(dtype, {3, 4, 5}, 0, 99)});
  }
}

TEST_CASE("host kernels: Slice with any start, end and step") {
  const Tensor x = random_tensor(DType::kF32, {7, 6, 9});
  const Check fixed = with_constants({1, 2, 3, 4});
  for (int64_t step : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{20}, int64_t{-1}, int64_t{-2}, int64_t{-3},
                       int64_t{-20}, INT64_MAX, -INT64_MAX}) {
    for (int64_t start : {0, 3, 6, 8, 9, 50, -1, -4, -9, -60}) {
      for (int64_t end : {int64_t{0}, int64_t{5}, int64_t{9}, int64_t{-2}, int64_t{-9}, int64_t{-10},
                          INT64_MAX, INT64_MIN}) {
        check_node("Slice", {x, ints({start}), ints({end}), ints({2}), ints({step})}, {}, fixed);
      }
    }
  }
  for (DType dtype : kSizes) {
    const Tensor y = random_tensor(dtype, {7, 6, 9}, 0, 99);
    check_node("Slice", {y, ints({1, 0}), ints({7, INT64_MAX})}, {}, fixed);
    check_node("Slice", {y, ints({-1, 4}), ints({INT64_MIN, 1}), ints({-1, 0}), ints({-2, -1})}, {}, fixed);
    check_node("Slice", {y, ints({2}), ints({2}), ints({0})}, {}, fixed);
    check_node(
        "Slice",
        {random_tensor(dtype, {200, 500}, 0, 99), ints({3, 7}), ints({190, 480}), ints({0, 1}), ints({1, 1})},
        {}, fixed);
    check_node("Slice", {random_tensor(dtype, {0, 5}), ints({0}), ints({9}), ints({0})}, {}, fixed);
  }
}

TEST_CASE("host kernels: Expand and Tile repeat") {
  for (DType dtype : kSizes) {
    for (const auto& [shape, to] : std::vector<std::pair<Extents, Ints>>{{{}, {3, 4}},
                                                                         {{1}, {0}},
                                                                         {{3, 1, 5}, {2, 1, 4, 1}},
                                                                         {{4, 1}, {4, 9000}},
                                                                         {{1, 1, 7}, {3, 2, 7}},
                                                                         {{2, 3}, {1}}}) {
      check_node("Expand", {random_tensor(dtype, shape, 0, 99), ints(to)}, {}, with_constants({1}));
    }
    for (const auto& [shape, by] :
         std::vector<std::pair<Extents, Ints>>{{{3}, {4}},
                                               {{2, 3}, {3, 2}},
                                               {{2, 3}, {1, 1}},
                                               {{2, 3, 4}, {2, 0, 1}},
                                               {{0, 3}, {2, 2}},
                                               {{2, 1, 2, 1, 2, 1, 2, 3}, {2, 3, 1, 2, 2, 1, 1, 2}},
                                               {{30, 40}, {10, 7}}}) {
      check_node("Tile", {random_tensor(dtype, shape, 0, 99), ints(by)}, {}, with_constants({1}));
    }
  }
}

TEST_CASE("host kernels: Concat and Split are each other's inverse along every axis") {
  for (DType dtype : kSizes) {
    for (int64_t axis : {0, 1, 2, -1}) {
      Extents a{3, 4, 5}, b{3, 4, 5}, c{3, 4, 5};
      const size_t at = axis < 0 ? 2 : static_cast<size_t>(axis);
      b[at] = 0;
      c[at] = 9;
      check_node("Concat",
                 {random_tensor(dtype, a, 0, 99), random_tensor(dtype, b), random_tensor(dtype, c, 0, 99)},
                 {{"axis", axis}});
      check_node("Split", {random_tensor(dtype, c, 0, 99), ints({2, 0, 7})}, {{"axis", axis}},
                 with_constants({1}, 3));
      check_node("Split", {random_tensor(dtype, c, 0, 99)}, {{"axis", axis}}, with_constants({}, 2));
    }
    check_node("Concat", {random_tensor(dtype, {3}, 0, 99)}, {{"axis", int64_t{0}}});
    check_node("Concat", {random_tensor(dtype, {90, 500}, 0, 99), random_tensor(dtype, {90, 7}, 0, 99)},
               {{"axis", int64_t{1}}});
    check_node("Split", {random_tensor(dtype, {100, 900}, 0, 99)}, {{"axis", int64_t{1}}},
               with_constants({}, 3));
  }
}

TEST_CASE("host kernels: Pad in three modes, on both sides, with negative pads") {
  for (DType dtype : kSizes) {
    const Tensor x = random_tensor(dtype, {4, 5, 6}, 0, 99);
    for (const char* mode : {"constant", "edge", "reflect"}) {
      const Attributes attributes{{"mode", std::string(mode)}};
      for (const Ints& pads :
           {Ints{0, 0, 0, 0, 0, 0}, Ints{1, 2, 3, 3, 1, 2}, Ints{0, 0, 5, 0, 0, 0}, Ints{3, 0, 0, 0, 4, 5},
            Ints{-1, 1, -2, 1, -3, 2}, Ints{0, 0, -2, 0, 0, -4}, Ints{0, 0, 2, 0, 0, -1}}) {
        check_node("Pad", {x, ints(pads)}, attributes, with_constants({1}));
      }
      check_node("Pad", {x, ints({2, 1, 1, 3}), Tensor::scalar(dtype, 7), ints({-1, 0})}, attributes,
                 with_constants({1, 3}));
    }
    check_node("Pad", {x, ints({1, 1, 1, 1, 1, 1}), Tensor::scalar(dtype, 7)}, {}, with_constants({1}));
    check_node("Pad", {random_tensor(dtype, {0, 3}), ints({2, 0, 0, 1})}, {}, with_constants({1}));
    check_node("Pad", {random_tensor(dtype, {8, 70, 90}, 0, 99), ints({0, 1, 1, 0, 1, 1})}, {},
               with_constants({1}));
  }
}

TEST_CASE(
    "host kernels: Gather takes rows along any axis, indices of two types, negative ones from the end") {
  for (DType dtype : kSizes) {
    for (DType index : {DType::kI32, DType::kI64}) {
      for (int64_t axis : {0, 1, 2, -1}) {
        const Tensor x = random_tensor(dtype, {5, 5, 5}, 0, 99);
        for (const Extents& shape : {Extents{}, Extents{4}, Extents{2, 3}, Extents{0}}) {
          check_node("Gather", {x, random_tensor(index, shape, -5, 4)}, {{"axis", axis}});
        }
        check_node("GatherElements", {x, random_tensor(index, {5, 5, 5}, -5, 4)}, {{"axis", axis}});
        check_node("GatherElements", {x, random_tensor(index, {3, 2, 4}, -5, 4)}, {{"axis", axis}});
      }
      for (const Extents& shape : {Extents{1}, Extents{7, 2}, Extents{2, 3, 4}, Extents{0, 2}}) {
        check_node("GatherND",
                   {random_tensor(dtype, {4, 5, 6, 7}, 0, 99), random_tensor(index, shape, -4, 3)});
      }
      check_node("GatherND",
                 {random_tensor(dtype, {4, 5, 6, 7}, 0, 99), random_tensor(index, {4, 3, 2}, -5, 4)},
                 {{"batch_dims", int64_t{1}}});
      check_node("GatherND",
                 {random_tensor(dtype, {4, 5, 6, 7}, 0, 99), random_tensor(index, {4, 5, 1}, -5, 4)},
                 {{"batch_dims", int64_t{2}}});
    }
    check_node("Gather",
               {random_tensor(dtype, {500, 384}, 0, 99), random_tensor(DType::kI64, {4, 128}, 0, 499)});
    check_node("GatherElements",
               {random_tensor(dtype, {50, 900}, 0, 99), random_tensor(DType::kI64, {50, 900}, -50, 49)});
  }
}

TEST_CASE("host kernels: an index out of range is refused, naming node, index and range") {
  const Tensor x = random_tensor(DType::kF32, {3, 4});
  const Tensor y = Tensor::zeros(DType::kF32, {2, 4});
  CHECK(error_of("Gather", {x, ints({1, 3})}, {}, {y}) ==
        "node 'tested' (Gather): index 3 is outside [-3, 2]");
  CHECK(error_of("Gather", {x, ints({-4, 0})}, {}, {y}) ==
        "node 'tested' (Gather): index -4 is outside [-3, 2]");
  CHECK(error_of("Gather", {x, ints({0, 7}, DType::kI32)}, {{"axis", int64_t{1}}},
                 {Tensor::zeros(DType::kF32, {3, 2})}) ==
        "node 'tested' (Gather): index 7 is outside [-4, 3]");
  const Tensor square = Tensor::of(DType::kI64, {2, 2}, std::span<const int64_t>(Ints{0, 1, 2, 4}));
  CHECK(
      error_of("GatherElements", {x, square}, {{"axis", int64_t{1}}}, {Tensor::zeros(DType::kF32, {2, 2})}) ==
      "node 'tested' (GatherElements): index 4 is outside [-4, 3]");
  CHECK(error_of("GatherND", {x, square}, {}, {Tensor::zeros(DType::kF32, {2})}) ==
        "node 'tested' (GatherND): index 4 is outside [-4, 3]");
}

TEST_CASE("host kernels: Trilu, OneHot, CumSum and the makers of constants") {
  for (DType dtype : kSizes) {
    for (int64_t upper : {0, 1}) {
      const Attributes attributes{{"upper", upper}};
      for (int64_t k : {int64_t{0}, int64_t{1}, int64_t{-1}, int64_t{3}, int64_t{-9}, int64_t{99}, INT64_MAX,
                        INT64_MIN}) {
        check_node("Trilu", {random_tensor(dtype, {2, 5, 7}, 1, 99), Tensor::of_i64({k}).reshaped({})},
                   attributes);
      }
      check_node("Trilu", {random_tensor(dtype, {300, 200}, 1, 99)}, attributes);
      check_node("Trilu", {random_tensor(dtype, {0, 4})}, attributes);
    }
    const Tensor values = Tensor::of(dtype, {2}, std::span<const int64_t>(Ints{3, 8}));
    for (DType index : {DType::kI64, DType::kI32, DType::kU8, DType::kF32}) {
      for (int64_t axis : {-1, 0, 1}) {
        const Tensor where = random_tensor(index, {3, 4}, index == DType::kU8 ? 0 : -9, 9);
        check_node("OneHot", {where, Tensor::of_i64({6}), values}, {{"axis", axis}}, with_constants({1}));
      }
    }
    check_node("OneHot", {random_tensor(DType::kI64, {700}, 0, 99), Tensor::of_i64({100}), values}, {},
               with_constants({1}));
    check_node("ConstantOfShape", {ints({2, 300})}, {{"value", Tensor::scalar(dtype, 5).reshaped({1})}},
               with_constants({0}));
    check_node("ConstantOfShape", {ints({0, 3})}, {}, with_constants({0}));
  }
  for (int64_t exclusive : {0, 1}) {
    for (int64_t reverse : {0, 1}) {
      for (DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI8, DType::kI32,
                          DType::kI64, DType::kU8}) {
        Check check;
        if (dtype == DType::kF16 || dtype == DType::kBF16) check.relative = 1e-2;
        for (int64_t axis : {0, 1, -1}) {
          const Attributes attributes{{"exclusive", exclusive}, {"reverse", reverse}};
          check_node("CumSum", {random_tensor(dtype, {5, 70, 3}, 0, 90), Tensor::of_i64({axis}).reshaped({})},
                     attributes, check);
        }
      }
    }
  }
  check_node("CumSum", {random_tensor(DType::kF32, {300, 200}), ints({0}, DType::kI32)});
  check_node(
      "Range",
      {Tensor::scalar(DType::kF32, 1), Tensor::scalar(DType::kF32, 9), Tensor::scalar(DType::kF32, 0.5)}, {},
      with_constants({0, 1, 2}));
  check_node(
      "Range",
      {Tensor::scalar(DType::kI32, 9), Tensor::scalar(DType::kI32, -9), Tensor::scalar(DType::kI32, -4)}, {},
      with_constants({0, 1, 2}));
  for (const Extents& shape : {Extents{2, 3, 4}, Extents{}, Extents{0, 2}}) {
    check_node("Shape", {random_tensor(DType::kF32, shape)});
    check_node("Size", {random_tensor(DType::kF32, shape)});
    check_node("Shape", {random_tensor(DType::kF32, shape)}, {{"start", int64_t{-2}}, {"end", int64_t{1}}});
  }
}

TEST_CASE("host kernels: TopK orders by value, NaN above all, ties by index") {
  const std::vector<double> special = {
      1, std::numeric_limits<double>::quiet_NaN(), 3, 3, -std::numeric_limits<double>::infinity(), 3, 1, 0};
  for (int64_t largest : {0, 1}) {
    for (int64_t axis : {0, 1, -1}) {
      const Attributes attributes{{"largest", largest}, {"axis", axis}};
      for (DType dtype : {DType::kF32, DType::kF16, DType::kI8, DType::kI64, DType::kF64}) {
        for (int64_t k : {0, 1, 3, 6})
          check_node("TopK", {random_tensor(dtype, {6, 6, 6}, -3, 3), ints({k})}, attributes,
                     with_constants({1}, 2));
      }
    }
    check_node("TopK", {Tensor::of(DType::kF32, {8}, std::span<const double>(special)), ints({8})},
               {{"largest", largest}}, with_constants({1}, 2));
    check_node("TopK", {random_tensor(DType::kF32, {20, 1000}), ints({17})}, {{"largest", largest}},
               with_constants({1}, 2));
  }
}

}  // namespace
}  // namespace heddle::host
