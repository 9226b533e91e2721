#include <limits>

#include "drivers/host/kernels/kernel_check_fixture.h"
#include "drivers/host/kernels/rows/softmax.h"

namespace heddle::host {
namespace {

using ir::Attributes;
using ir::DType;
using ir::Extents;
using ir::Tensor;

constexpr DType kFloats[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16};

Check row_tolerance(DType dtype) {
  Check check;
  check.absolute = 3e-6;
  if (dtype == DType::kF16) check.relative = check.absolute = 4e-3;
  if (dtype == DType::kBF16) check.relative = check.absolute = 3e-2;
  return check;
}

TEST_CASE("host kernels: Softmax and LogSoftmax along every axis, lengths around the vector width") {
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    for (DType dtype : kFloats) {
      for (int64_t n : {1, 2, 15, 16, 17, 31, 33, 128, 129, 1000}) {
        check_node(op, {random_tensor(dtype, {3, n}, -9, 9)}, {}, row_tolerance(dtype));
      }
      for (int64_t axis : {0, 1, 2, -2})
        check_node(op, {random_tensor(dtype, {4, 5, 6}, -9, 9)}, {{"axis", axis}}, row_tolerance(dtype));
      check_node(op, {random_tensor(dtype, {0, 5})}, {}, row_tolerance(dtype));
      check_node(op, {random_tensor(dtype, {5, 0})}, {}, row_tolerance(dtype));
    }
    check_node(op, {random_tensor(DType::kF32, {300, 128}, -90, 90)}, {}, row_tolerance(DType::kF32));
    check_node(op, {random_tensor(DType::kF32, {300, 128}, -9, 9)}, {{"axis", int64_t{0}}},
               row_tolerance(DType::kF32));
  }
}

TEST_CASE("host kernels: Softmax of masked rows, infinities and NaN is what its definition gives") {
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    for (DType dtype : {DType::kF32, DType::kF64}) {
      Tensor x = random_tensor(dtype, {6, 20});
      for (int64_t i = 0; i < 20; ++i) x.set(i, -kInfinity);
      for (int64_t i = 0; i < 10; ++i) x.set(20 + i, -kInfinity);
      x.set(43, kInfinity);
      x.set(75, kNan);
      for (int64_t i = 0; i < 20; ++i) x.set(100 + i, i % 2 == 0 ? 3e38 : -3e38);
      check_node(op, {x}, {}, row_tolerance(dtype));
    }
  }
}

TEST_CASE(
    "host kernels: softmax_rows gives zeros for a row of -inf and leaves what lies between rows alone") {
  std::vector<float> rows(3 * 40, 7.0f);
  for (size_t i = 0; i < 33; ++i) rows[i] = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < 33; ++i) rows[40 + i] = static_cast<float>(i);
  softmax_rows(rows.data(), 3, 33, 40);
  double sum = 0;
  for (size_t i = 0; i < 33; ++i) {
    CHECK(rows[i] == 0.0f);
    CHECK(rows[80 + i] == doctest::Approx(1.0 / 33));
    sum += static_cast<double>(rows[40 + i]);
  }
  CHECK(sum == doctest::Approx(1));
  for (size_t row = 0; row < 3; ++row) {
    for (size_t i = 33; i < 40; ++i) CHECK(rows[row * 40 + i] == 7.0f);
  }
}

TEST_CASE("host kernels: layer and RMS normalisation, scale and bias broadcast over the normalised axes") {
  for (DType dtype : kFloats) {
    for (int64_t n : {1, 15, 17, 384, 1030}) {
      const Tensor x = random_tensor(dtype, {2, 3, n});
      const Tensor scale = random_tensor(dtype, {n}, 0.5, 2), bias = random_tensor(dtype, {n}, -1, 1, 3);
      check_node("LayerNormalization", {x, scale, bias}, {}, row_tolerance(dtype));
      check_node("LayerNormalization", {x, scale}, {{"epsilon", 1e-3}}, row_tolerance(dtype));
      check_node("RMSNormalization", {x, scale}, {}, row_tolerance(dtype));
    }
    const Tensor x = random_tensor(dtype, {2, 3, 4, 5});
    check_node("LayerNormalization", {x, random_tensor(dtype, {3, 4, 5}), random_tensor(dtype, {3, 4, 5})},
               {{"axis", int64_t{1}}}, row_tolerance(dtype));
    check_node("LayerNormalization", {x, random_tensor(dtype, {4, 1}), random_tensor(dtype, {})},
               {{"axis", int64_t{-2}}}, row_tolerance(dtype));
    check_node("RMSNormalization", {x, random_tensor(dtype, {5})}, {{"axis", int64_t{2}}},
               row_tolerance(dtype));
    check_node("LayerNormalization", {random_tensor(dtype, {0, 8}), random_tensor(dtype, {8})}, {},
               row_tolerance(dtype));
    check_node("LayerNormalization",
               {random_tensor(dtype, {8}), random_tensor(DType::kF64, {8}), random_tensor(DType::kF16, {8})},
               {}, row_tolerance(dtype));
  }
  check_node("LayerNormalization",
             {random_tensor(DType::kF32, {100, 384}), random_tensor(DType::kF32, {384}),
              random_tensor(DType::kF32, {384})},
             {}, row_tolerance(DType::kF32));
  Check offset;  // The rows' mean is large against their spread: f32 itself keeps four digits.
  offset.absolute = 5e-3;
  check_node("LayerNormalization",
             {random_tensor(DType::kF32, {4, 3000}, 999, 1001), random_tensor(DType::kF32, {3000}, 0.5, 1)},
             {}, offset);
}

TEST_CASE("host kernels: group and instance normalisation, per channel") {
  for (DType dtype : kFloats) {
    for (const Extents& shape :
         {Extents{2, 6, 5, 7}, Extents{1, 6, 40}, Extents{3, 6}, Extents{0, 6, 4}, Extents{2, 6, 0}}) {
      const Tensor x = random_tensor(dtype, shape), scale = random_tensor(dtype, {6}, 0.5, 2),
                   bias = random_tensor(dtype, {6}, -1, 1, 3);
      for (int64_t groups : {1, 2, 3, 6})
        check_node("GroupNormalization", {x, scale, bias}, {{"num_groups", groups}}, row_tolerance(dtype));
      check_node("InstanceNormalization", {x, scale, bias}, {}, row_tolerance(dtype));
    }
  }
  check_node("GroupNormalization",
             {random_tensor(DType::kF32, {2, 32, 40, 40}), random_tensor(DType::kF32, {32}),
              random_tensor(DType::kF32, {32})},
             {{"num_groups", int64_t{8}}}, row_tolerance(DType::kF32));
}

}  // namespace
}  // namespace heddle::host
