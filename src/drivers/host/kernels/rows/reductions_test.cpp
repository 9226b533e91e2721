#include <limits>

#include "drivers/host/kernels/kernel_check_fixture.h"

namespace heddle::host {
namespace {

using ir::Attributes;
using ir::DType;
using ir::Extents;
using ir::Tensor;

using Ints = std::vector<int64_t>;

Check over_axes(DType dtype) {
  Check check;
  check.constants = {1};
  if (dtype == DType::kF16) check.relative = check.absolute = 2e-3;
  if (dtype == DType::kBF16) check.relative = check.absolute = 1e-2;
  return check;
}

const char* const kReductions[] = {"ReduceSum",  "ReduceMean", "ReduceMax",      "ReduceMin",
                                   "ReduceProd", "ReduceL2",   "ReduceSumSquare"};

TEST_CASE("host kernels: reductions over any axes of any type agree with the reference") {
  const std::vector<std::pair<Extents, Ints>> cases = {
      {{7}, {}},
      {{3, 5}, {1}},
      {{3, 5}, {0}},
      {{4, 33, 5}, {1}},
      {{4, 3, 5}, {0, 2}},
      {{2, 3, 4, 5}, {1, 3}},
      {{2, 3, 4, 5}, {-1, -2}},
      {{1, 17, 1, 19}, {1}},
      {{3, 700}, {1}},
      {{700, 3}, {0}},
      {{}, {}},
      {{2, 1, 2, 3, 1, 2, 2, 2}, {0, 3, 5}},
      {{5, 600}, {0}},
  };
  for (DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI8, DType::kU8,
                      DType::kI16, DType::kI32, DType::kI64}) {
    for (const char* op : kReductions) {
      for (const auto& [shape, axes] : cases) {
        // Products stay near 1; the roots of wrapped integers are left out by small values.
        const bool product = std::string(op) == "ReduceProd" && ir::is_float(dtype);
        const Tensor x = random_tensor(dtype, shape,
                                       product               ? 0.97
                                       : dtype == DType::kU8 ? 0
                                                             : -2,
                                       product ? 1.03 : 2);
        for (int64_t keep : {0, 1}) {
          check_node(op, {x, Tensor::of_i64(axes)}, {{"keepdims", keep}}, over_axes(dtype));
        }
      }
    }
  }
}

TEST_CASE("host kernels: the root of squares that have wrapped below zero is zero") {
  check_node("ReduceL2", {Tensor::of_i64({int64_t{1} << 31, int64_t{1} << 31})}, {}, over_axes(DType::kI64));
}

TEST_CASE("host kernels: reductions of nothing, of nothing left out, and of empty tensors") {
  for (const char* op : kReductions) {
    check_node(op, {random_tensor(DType::kF32, {3, 4})});
    check_node(op, {random_tensor(DType::kF32, {3, 4})}, {{"noop_with_empty_axes", int64_t{1}}});
    check_node(op, {random_tensor(DType::kF32, {0, 4}), Tensor::of_i64({1})}, {}, over_axes(DType::kF32));
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64, DType::kI8, DType::kU8,
                        DType::kU16, DType::kI32, DType::kU32, DType::kI64}) {
      check_node(op, {random_tensor(dtype, {0, 4}), Tensor::of_i64({0})}, {}, over_axes(dtype));
      check_node(op, {random_tensor(dtype, {4, 0}), Tensor::of_i64({1})}, {}, over_axes(dtype));
      check_node(op, {random_tensor(dtype, {4, 0, 3}), Tensor::of_i64({1, 2})}, {}, over_axes(dtype));
    }
  }
  for (const char* op : {"ReduceMax", "ReduceMin"}) {
    check_node(op, {random_tensor(DType::kBool, {40, 5}), Tensor::of_i64({0})}, {}, over_axes(DType::kBool));
    check_node(op, {random_tensor(DType::kBool, {0, 5}), Tensor::of_i64({0})}, {}, over_axes(DType::kBool));
  }
}

TEST_CASE("host kernels: reductions let NaN and infinity through") {
  for (double odd : {std::numeric_limits<double>::quiet_NaN(), kInfinity, -kInfinity}) {
    for (int64_t at : {0, 5, 15, 16, 40, 41}) {
      Tensor x = random_tensor(DType::kF32, {42});
      x.set(at, odd);
      for (const char* op : kReductions) {
        check_node(op, {x});
        check_node(op, {x.reshaped({6, 7}), Tensor::of_i64({0})}, {}, over_axes(DType::kF32));
      }
    }
  }
}

TEST_CASE("large reductions are split without changing bits") {
  for (const char* op : kReductions) {
    for (int64_t axis : {0, 1, 2}) {
      check_node(op, {random_tensor(DType::kF32, {30, 40, 50}, -1, 1), Tensor::of_i64({axis})}, {},
                 over_axes(DType::kF32));
    }
    check_node(op, {random_tensor(DType::kF32, {100000}, -1, 1)});
  }
}

TEST_CASE("host kernels: ArgMax and ArgMin choose the first or last of equal elements, NaN above all") {
  for (const char* op : {"ArgMax", "ArgMin"}) {
    for (int64_t last : {0, 1}) {
      for (int64_t axis : {0, 1, -1}) {
        for (int64_t keep : {0, 1}) {
          const Attributes attributes{{"axis", axis}, {"keepdims", keep}, {"select_last_index", last}};
          for (DType dtype : {DType::kF32, DType::kF16, DType::kI8, DType::kI64, DType::kF64, DType::kU8}) {
            check_node(op, {random_tensor(dtype, {4, 9, 5}, 0, 3)}, attributes);
          }
          check_node(op, {random_tensor(DType::kF32, {50, 30, 30})}, attributes);
        }
      }
      Tensor x = random_tensor(DType::kF32, {3, 8});
      for (int64_t at : {2, 5, 8}) x.set(at, std::numeric_limits<double>::quiet_NaN());
      check_node(op, {x}, {{"axis", int64_t{1}}, {"select_last_index", last}});
    }
  }
}

}  // namespace
}  // namespace heddle::host
