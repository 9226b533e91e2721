#include "ir/tensor.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

namespace heddle::ir {

namespace {

// To float, inexact results forced odd: a second rounding, to 16 bits, then gives what one rounding would.
float to_odd_float(double value) {
  const float nearest = static_cast<float>(value);
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (std::isnan(value) || static_cast<double>(nearest) == value || (bits & 1) != 0) return nearest;
  bits += std::fabs(static_cast<double>(nearest)) > std::fabs(value) ? uint32_t(-1) : 1u;
  return std::bit_cast<float>(bits);
}

constexpr double kTwoTo63 = 9223372036854775808.0;

int64_t to_integer(double value) {
  return value >= -kTwoTo63 && value < kTwoTo63 ? static_cast<int64_t>(value) : 0;
}

}  // namespace

Result<Tensor> Tensor::make(DType dtype, const Extents& extents) {
  constexpr size_t kAlign = 64;
  HEDDLE_TRY_ASSIGN(const int64_t count, checked_elements(extents.span(), dtype));
  const size_t bytes = static_cast<size_t>(count * size_of(dtype));
  // calloc leaves large areas untouched until they are written.
  void* block = std::calloc(bytes + kAlign, 1);
  if (block == nullptr)
    return Status::exhausted("no memory for ", TensorType{dtype, to_shape(extents)}, ", ", bytes, " bytes");
  std::shared_ptr<void> owner(block, &std::free);
  const uintptr_t address = reinterpret_cast<uintptr_t>(block);
  const size_t skip = (kAlign - address % kAlign) % kAlign;
  return borrow(dtype, extents, static_cast<char*>(block) + skip, std::move(owner));
}

Tensor Tensor::zeros(DType dtype, const Extents& extents) {
  Result<Tensor> made = make(dtype, extents);
  if (made.status().code() == Code::exhausted) throw std::bad_alloc();
  return std::move(made).value();
}

Tensor Tensor::borrow(DType dtype, const Extents& extents, const void* bytes,
                      std::shared_ptr<const void> keep) {
  Tensor t;
  t.dtype_ = dtype;
  t.extents_ = extents;
  t.data_ = std::shared_ptr<const void>(std::move(keep), bytes);
  return t;
}

Tensor Tensor::of_i64(const std::vector<int64_t>& values) {
  Tensor t = zeros(DType::kI64, {static_cast<int64_t>(values.size())});
  if (!values.empty()) std::memcpy(t.mutable_data(), values.data(), values.size() * sizeof(int64_t));
  return t;
}

Tensor Tensor::scalar(DType dtype, double value) {
  Tensor t = zeros(dtype, {});
  t.set(0, value);
  return t;
}

double Tensor::get(int64_t i) const {
  switch (dtype_) {
    case DType::kF32:
      return static_cast<double>(as<float>()[i]);
    case DType::kF16:
      return static_cast<double>(f16_to_f32(as<uint16_t>()[i]));
    case DType::kBF16:
      return static_cast<double>(bf16_to_f32(as<uint16_t>()[i]));
    case DType::kF64:
      return as<double>()[i];
    case DType::kU64:
      return static_cast<double>(as<uint64_t>()[i]);
    default:
      return static_cast<double>(get_i64(i));
  }
}

int64_t Tensor::get_i64(int64_t i) const {
  switch (dtype_) {
    case DType::kI8:
      return as<int8_t>()[i];
    case DType::kU8:
      return as<uint8_t>()[i];
    case DType::kI16:
      return as<int16_t>()[i];
    case DType::kI32:
      return as<int32_t>()[i];
    case DType::kI64:
    case DType::kU64:
      return as<int64_t>()[i];
    case DType::kU16:
      return as<uint16_t>()[i];
    case DType::kU32:
      return as<uint32_t>()[i];
    case DType::kBool:
      return as<uint8_t>()[i] != 0 ? 1 : 0;
    default:
      return to_integer(get(i));
  }
}

void Tensor::set(int64_t i, double value) {
  switch (dtype_) {
    case DType::kF32:
      static_cast<float*>(mutable_data())[i] = static_cast<float>(value);
      break;
    case DType::kF16:
      static_cast<uint16_t*>(mutable_data())[i] = f32_to_f16(to_odd_float(value));
      break;
    case DType::kBF16:
      static_cast<uint16_t*>(mutable_data())[i] = f32_to_bf16(to_odd_float(value));
      break;
    case DType::kF64:
      static_cast<double*>(mutable_data())[i] = value;
      break;
    case DType::kBool:
      static_cast<uint8_t*>(mutable_data())[i] = value != 0 ? 1 : 0;
      break;
    case DType::kU64:
      // From 2^63 on no i64 holds the value.
      set_i64(i, value >= kTwoTo63 && value < 2 * kTwoTo63
                     ? static_cast<int64_t>(static_cast<uint64_t>(value))
                     : to_integer(value));
      break;
    default:
      set_i64(i, to_integer(value));
  }
}

void Tensor::set_i64(int64_t i, int64_t value) {
  switch (dtype_) {
    case DType::kI8:
      static_cast<int8_t*>(mutable_data())[i] = static_cast<int8_t>(value);
      break;
    case DType::kU8:
      static_cast<uint8_t*>(mutable_data())[i] = static_cast<uint8_t>(value);
      break;
    case DType::kI16:
      static_cast<int16_t*>(mutable_data())[i] = static_cast<int16_t>(value);
      break;
    case DType::kI32:
      static_cast<int32_t*>(mutable_data())[i] = static_cast<int32_t>(value);
      break;
    case DType::kI64:
    case DType::kU64:
      static_cast<int64_t*>(mutable_data())[i] = value;
      break;
    case DType::kU16:
      static_cast<uint16_t*>(mutable_data())[i] = static_cast<uint16_t>(value);
      break;
    case DType::kU32:
      static_cast<uint32_t*>(mutable_data())[i] = static_cast<uint32_t>(value);
      break;
    case DType::kBool:
      static_cast<uint8_t*>(mutable_data())[i] = value != 0 ? 1 : 0;
      break;
    case DType::kF32:
      static_cast<float*>(mutable_data())[i] = static_cast<float>(value);
      break;
    default:
      set(i, static_cast<double>(value));
  }
}

std::vector<int64_t> Tensor::to_i64() const {
  std::vector<int64_t> values(static_cast<size_t>(elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = get_i64(static_cast<int64_t>(i));
  return values;
}

Tensor Tensor::reshaped(const Extents& extents) const {
  Tensor t = *this;
  t.extents_ = extents;
  return t;
}

}  // namespace heddle::ir
