#include "ir/dtype.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "ir/tensor.h"

namespace heddle::ir {

namespace {

struct Format {
  float (*widen)(uint16_t);
  uint16_t (*narrow)(float);
  int mantissa_bits;
};
constexpr Format kFormats[] = {{f16_to_f32, f32_to_f16, 10}, {bf16_to_f32, f32_to_bf16, 7}};

// Of the two neighbours that enclose a magnitude, the nearer one; of two equally near, the even one.
uint16_t nearest(const Format& f, uint16_t below, double magnitude) {
  const double low = static_cast<double>(f.widen(below));
  const double high = static_cast<double>(f.widen(static_cast<uint16_t>(below + 1)));
  const double middle = low + (high - low) / 2;
  if (magnitude != middle) return magnitude < middle ? below : static_cast<uint16_t>(below + 1);
  return (below & 1) == 0 ? below : static_cast<uint16_t>(below + 1);
}

}  // namespace

TEST_CASE("all 65536 halves survive the way to f32 and back") {
  for (const Format& f : kFormats) {
    uint32_t wrong = 0;
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const float wide = f.widen(static_cast<uint16_t>(bits));
      const uint16_t back = f.narrow(wide);
      // A signalling NaN comes back quiet.
      if (std::isnan(wide) ? !std::isnan(f.widen(back)) : back != bits) ++wrong;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("narrowing rounds to nearest even between all neighbours") {
  for (const Format& f : kFormats) {
    const uint16_t infinity = f.narrow(std::numeric_limits<float>::infinity());
    uint32_t wrong = 0;
    for (uint16_t below = 0; below + 1 < infinity; ++below) {
      const double low = static_cast<double>(f.widen(below));
      const double high = static_cast<double>(f.widen(static_cast<uint16_t>(below + 1)));
      for (double part : {0.25, 0.5, 0.75}) {
        const float value = static_cast<float>(low + part * (high - low));
        const uint16_t want = nearest(f, below, static_cast<double>(value));
        if (f.narrow(value) != want || f.narrow(-value) != (want | 0x8000)) ++wrong;
      }
    }
    CHECK(wrong == 0);
    CHECK(f.narrow(std::numeric_limits<float>::max()) == infinity);
    CHECK(std::isnan(f.widen(f.narrow(std::numeric_limits<float>::quiet_NaN()))));
  }
  CHECK(f32_to_f16(65519.0f) == 0x7bff);
  CHECK(f32_to_f16(65520.0f) == 0x7c00);
}

TEST_CASE("a double is rounded to 16 bits once") {
  Tensor t = Tensor::zeros(DType::kF16, {1});
  // Just above the middle of 1 and its successor: rounding to float first would land on the middle, then on
  // 1.
  t.set(0, 1 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40));
  CHECK(t.get(0) == 1 + std::ldexp(1.0, -10));
  t.set(0, -(1 + std::ldexp(1.0, -11) - std::ldexp(1.0, -40)));
  CHECK(t.get(0) == -1);
}

TEST_CASE("every dtype is found under its name") {
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    CHECK(dtype_from_name(name(dtype)) == dtype);
    CHECK(size_of(dtype) >= 1);
  }
  CHECK(!dtype_from_name("float32").has_value());
}

TEST_CASE("integers of 64 bits pass through a tensor exactly") {
  Tensor t = Tensor::zeros(DType::kI64, {2});
  t.set_i64(0, INT64_MAX);
  t.set_i64(1, INT64_MIN);
  CHECK(t.to_i64() == std::vector<int64_t>{INT64_MAX, INT64_MIN});
  Tensor narrow = Tensor::zeros(DType::kI8, {3});
  for (int64_t i = 0; i < 3; ++i)
    narrow.set(i, std::vector<double>{1e300, -1.9, std::nan("")}[static_cast<size_t>(i)]);
  CHECK(narrow.to_i64() == std::vector<int64_t>{0, -1, 0});
  CHECK(reinterpret_cast<uintptr_t>(t.data()) % 64 == 0);
}

}  // namespace heddle::ir
