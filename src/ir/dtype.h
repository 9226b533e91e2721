// dtype.h: the thirteen element types, their sizes and names, and the two 16-bit floats' conversions.
//
//   What       A DType names how one element of a tensor lies in memory. Bool is one byte, 0 or 1.
//   Threads    Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace heddle::ir {

enum class DType : uint8_t { kF32, kF16, kBF16, kF64, kI8, kU8, kI16, kI32, kI64, kU16, kU32, kU64, kBool };
inline constexpr int kDTypeCount = 13;

int64_t size_of(DType dtype);        // bytes of one element
std::string_view name(DType dtype);  // "f32", "bf16", "i64", "bool" ...
std::optional<DType> dtype_from_name(std::string_view name);
const std::string& dtype_names();  // all of them, for messages: "f32, f16, ..."
inline std::string to_string(DType dtype) { return std::string(name(dtype)); }

inline bool is_float(DType d) { return d <= DType::kF64; }
inline bool is_integer(DType d) { return d >= DType::kI8 && d <= DType::kU64; }
inline bool is_unsigned(DType d) { return d == DType::kU8 || (d >= DType::kU16 && d <= DType::kU64); }

// IEEE half and bfloat16, round to nearest even; NaN stays NaN, overflow becomes infinity.
float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);
float bf16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float value);

}  // namespace heddle::ir
