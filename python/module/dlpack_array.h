// dlpack_array.h: what another library says of an array by DLPack, checked; nothing of Python's.
//
//   What       Another library fills such a description: it may say anything. What it says becomes the parts
//              of a Tensor, or an Error that names the input.
//   Threads    Pure functions; any thread.
#pragma once

#include <heddle/heddle.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace heddle::python {

// DLDataType and DLDataTypeCode.
enum class DlpackCode : uint8_t { integer = 0, unsigned_integer = 1, real = 2, bfloat = 4, boolean = 6 };
struct DlpackType {
  uint8_t code, bits;
  uint16_t lanes;
};
std::optional<DType> dtype_of(DlpackType type);  // nothing: Heddle has none like it

// Of a DLTensor, without its device.
struct DlpackArray {
  void* data;
  int32_t ndim;
  DlpackType type;
  const int64_t* shape;
  const int64_t* strides;  // in elements; null: contiguous
  uint64_t byte_offset;
};

struct ArrayParts {
  std::byte* data;
  DType dtype;
  Shape shape, strides;
};
// invalid, or unsupported for an element type that Heddle lacks. Extents and strides are Tensor's to check.
ArrayParts checked(const DlpackArray& array, std::string_view name);

}  // namespace heddle::python
