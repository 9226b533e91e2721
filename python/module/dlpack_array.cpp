#include "dlpack_array.h"

#include <string>

namespace heddle::python {
namespace {

constexpr int32_t kAxesMost = 8;  // of a Tensor

[[noreturn]] void refuse(std::string_view name, const std::string& what) {
  throw Error(ErrorCode::invalid, "input '" + std::string(name) + "': its DLPack tensor " + what);
}

std::optional<DType> of_bits(uint8_t bits, DType of_8, DType of_16, DType of_32, DType of_64) {
  switch (bits) {
    case 8:
      return of_8;
    case 16:
      return of_16;
    case 32:
      return of_32;
    case 64:
      return of_64;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<DType> dtype_of(DlpackType type) {
  if (type.lanes != 1) return std::nullopt;
  switch (static_cast<DlpackCode>(type.code)) {
    case DlpackCode::real:
      if (type.bits == 8) return std::nullopt;
      return of_bits(type.bits, DType::f16, DType::f16, DType::f32, DType::f64);
    case DlpackCode::bfloat:
      return type.bits == 16 ? std::optional(DType::bf16) : std::nullopt;
    case DlpackCode::integer:
      return of_bits(type.bits, DType::i8, DType::i16, DType::i32, DType::i64);
    case DlpackCode::unsigned_integer:
      return of_bits(type.bits, DType::u8, DType::u16, DType::u32, DType::u64);
    case DlpackCode::boolean:
      return type.bits == 8 ? std::optional(DType::boolean) : std::nullopt;
  }
  return std::nullopt;
}

ArrayParts checked(const DlpackArray& array, std::string_view name) {
  const std::optional<DType> dtype = dtype_of(array.type);
  if (!dtype) {
    throw Error(ErrorCode::unsupported, "input '" + std::string(name) + "' has a dtype that Heddle lacks");
  }
  if (array.ndim < 0 || array.ndim > kAxesMost) {
    refuse(name, "has " + std::to_string(array.ndim) + " dimensions; 0 to " + std::to_string(kAxesMost) +
                     " are possible");
  }
  if (array.shape == nullptr && array.ndim > 0) refuse(name, "has dimensions and no shape");
  ArrayParts parts{nullptr, *dtype, Shape(array.shape, array.shape + array.ndim), {}};
  if (array.strides != nullptr) parts.strides.assign(array.strides, array.strides + array.ndim);
  bool empty = false;
  for (const int64_t extent : parts.shape) empty = empty || extent == 0;
  if (array.data == nullptr && !empty) refuse(name, "has elements and no data");
  const auto address = reinterpret_cast<uintptr_t>(array.data);
  if (array.byte_offset > UINTPTR_MAX - address)
    refuse(name, "begins " + std::to_string(array.byte_offset) + " bytes after its data, where no memory is");
  parts.data = reinterpret_cast<std::byte*>(address + array.byte_offset);
  return parts;
}

}  // namespace heddle::python
