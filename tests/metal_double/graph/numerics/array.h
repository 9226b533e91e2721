// array.h: what MPSGraph's double computes with: elements of one of Metal's types, row-major.
//
//   What       An Array has a shape, slowest axis first. with_numbers() and its like call back with a value
//              of the C++ type that lies in memory.
//   Precision  Floats are computed in f32. Apple does not document it; a narrower result is rounded once, to
//              nearest even, at the end of its operation. Integers wrap.
//   Lifetime   The bytes are shared; copying an Array copies a reference.
//   Threads    Reading is safe anywhere; write() is for the thread that just made it.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace heddle::metal_double {

using Shape = std::vector<int64_t>;
int64_t elements_of(std::span<const int64_t> shape);
std::string shown(const Shape& shape);
std::string shown(MPSDataType type);

// Apple's types say these themselves.
constexpr bool has(MPSDataType type, uint32_t bit) { return (static_cast<uint32_t>(type) & bit) != 0; }
constexpr bool is_float(MPSDataType type) { return has(type, MPSDataTypeFloatBit); }
constexpr bool is_integer(MPSDataType type) { return !is_float(type) && type != MPSDataTypeBool; }
constexpr int64_t size_of(MPSDataType type) { return (type & 0xFFFF) / 8; }

using Half = _Float16;

// The upper half of an f32.
class BFloat {
 public:
  BFloat() = default;
  explicit BFloat(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const bool up = (bits & 0x8000) != 0 && (bits & 0x17FFF) != 0;  // above the middle, or from odd to even
    bits_ = std::isnan(value) ? 0x7FC0 : static_cast<uint16_t>((bits >> 16) + up);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits_) << 16); }

 private:
  uint16_t bits_ = 0;
};

template <class T>
inline constexpr bool kFloats =
    std::is_same_v<T, float> || std::is_same_v<T, Half> || std::is_same_v<T, BFloat>;
template <class T>
using Computed = std::conditional_t<kFloats<T>, float, T>;

class Array {
 public:
  Array() = default;
  static Array zeros(MPSDataType type, const Shape& shape);
  // The caller keeps the bytes.
  static Array borrow(MPSDataType type, const Shape& shape, const void* bytes);

  MPSDataType type() const { return type_; }
  const Shape& shape() const { return shape_; }
  int64_t elements() const { return elements_of(shape_); }
  int64_t bytes() const { return elements() * size_of(type_); }
  const std::byte* data() const { return bytes_.get(); }
  std::byte* write() { return bytes_.get(); }  // of an Array from zeros()
  template <class T>
  const T* read() const {
    return reinterpret_cast<const T*>(data());
  }
  template <class T>
  T* write() {
    return reinterpret_cast<T*>(write());
  }
  Array reshaped(const Shape& shape) const;

 private:
  MPSDataType type_ = MPSDataTypeFloat32;
  Shape shape_{0};
  std::shared_ptr<std::byte[]> bytes_;
};

[[noreturn]] void no_such_type(MPSDataType type);

template <class F>
auto with_floats(MPSDataType type, F&& f) {
  switch (type) {
    case MPSDataTypeFloat32:
      return f(float{});
    case MPSDataTypeFloat16:
      return f(Half{});
    default:
      no_such_type(type);
  }
}

// Bool as u8: bytes that are 0 or 1.
template <class F>
auto with_integers(MPSDataType type, F&& f) {
  switch (type) {
    case MPSDataTypeInt8:
      return f(int8_t{});
    case MPSDataTypeUInt8:
    case MPSDataTypeBool:
      return f(uint8_t{});
    case MPSDataTypeInt16:
      return f(int16_t{});
    case MPSDataTypeInt32:
      return f(int32_t{});
    case MPSDataTypeInt64:
      return f(int64_t{});
    default:
      no_such_type(type);
  }
}

template <class F>
auto with_numbers(MPSDataType type, F&& f) {
  return is_float(type) ? with_floats(type, f) : with_integers(type, f);
}

// f32, or f16 widened.
std::vector<float> floats_of(const Array& x);
Array of_floats(MPSDataType type, const Shape& shape, const std::vector<float>& values);
// i32 or i64.
std::vector<int64_t> integers_of(const Array& x);

}  // namespace heddle::metal_double
