#include "ir/dtype.h"

#include <array>
#include <bit>
#include <cmath>

#include "base/made_once.h"

namespace heddle::ir {

namespace {

struct Entry {
  std::string_view name;
  int64_t size;
};
constexpr std::array<Entry, kDTypeCount> kEntries = {{{"f32", 4},
                                                      {"f16", 2},
                                                      {"bf16", 2},
                                                      {"f64", 8},
                                                      {"i8", 1},
                                                      {"u8", 1},
                                                      {"i16", 2},
                                                      {"i32", 4},
                                                      {"i64", 8},
                                                      {"u16", 2},
                                                      {"u32", 4},
                                                      {"u64", 8},
                                                      {"bool", 1}}};

// Drops the low `shift` bits of a positive number, to nearest, ties to even.
uint32_t drop_bits(uint32_t value, uint32_t shift) {
  const uint32_t kept = value >> shift;
  const uint32_t rest = value & ((1u << shift) - 1);
  const uint32_t half = 1u << (shift - 1);
  return kept + ((rest > half || (rest == half && (kept & 1) != 0)) ? 1 : 0);
}

}  // namespace

int64_t size_of(DType dtype) { return kEntries[static_cast<size_t>(dtype)].size; }
std::string_view name(DType dtype) { return kEntries[static_cast<size_t>(dtype)].name; }

std::optional<DType> dtype_from_name(std::string_view wanted) {
  for (size_t i = 0; i < kEntries.size(); ++i) {
    if (kEntries[i].name == wanted) return static_cast<DType>(i);
  }
  return std::nullopt;
}

const std::string& dtype_names() {
  static constinit MadeOnce<const std::string> names;
  return names.get([] {
    std::string all;
    for (const Entry& entry : kEntries) all += (all.empty() ? "" : ", ") + std::string(entry.name);
    return all;
  });
}

float f16_to_f32(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {
    const float value = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half = 0;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);  // a quiet NaN
  } else if (magnitude >= 0x477ff000u) {
    half = 0x7c00u;  // 65520 and above round to infinity
  } else if (magnitude >= 0x38800000u) {
    half = drop_bits(magnitude - 0x38000000u, 13);
  } else if (magnitude >= 0x33000000u) {  // below the least normal: units of 2^-24
    half = drop_bits((magnitude & 0x7fffffu) | 0x800000u, 126 - (magnitude >> 23));
  }
  return static_cast<uint16_t>(sign | half);
}

float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t sign = (bits >> 16) & 0x8000u;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | (magnitude >> 16) | 0x40u);
  return static_cast<uint16_t>(sign | drop_bits(magnitude, 16));
}

}  // namespace heddle::ir
