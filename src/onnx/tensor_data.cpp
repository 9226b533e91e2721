#include "onnx/tensor_data.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "onnx/names.h"

namespace heddle::onnx {
namespace {

static_assert(std::endian::native == std::endian::little, "raw_data is little-endian and used as it lies");

constexpr size_t kCopyBelow = 4096;  // small tensors are copied: aligned, and free of the file

struct Description {
  ir::DType dtype;
  ir::Extents extents;
  uint64_t bytes;
};

Result<Description> describe(const proto::TensorProto& tensor, const Limits& limits) {
  const auto dtype = dtype_of(tensor.data_type());
  if (!dtype) {
    return Status::unsupported("element type ", data_type_name(tensor.data_type()),
                               " is not supported; it must be one of ", ir::dtype_names());
  }
  const auto rank = static_cast<size_t>(tensor.dims_size());
  if (rank > ir::kMaxRank) {
    return Status::unsupported("rank ", rank, " is not supported; it must be at most ", ir::kMaxRank);
  }
  const std::span<const int64_t> dims(tensor.dims().data(), rank);
  HEDDLE_TRY_ASSIGN(const int64_t elements, ir::checked_elements(dims, *dtype));
  const uint64_t bytes = static_cast<uint64_t>(elements) * static_cast<uint64_t>(ir::size_of(*dtype));
  if (bytes > limits.tensor_bytes) {
    return Status::invalid("the tensor has ", bytes, " bytes; the limit is ", limits.tensor_bytes);
  }
  return Description{*dtype, ir::Extents(dims), bytes};
}

Status check_bools(ir::DType dtype, const void* data, uint64_t bytes) {
  if (dtype != ir::DType::kBool) return {};
  const auto* first = static_cast<const uint8_t*>(data);
  if (std::any_of(first, first + bytes, [](uint8_t b) { return b > 1; })) {
    return Status::invalid("a bool is neither 0 nor 1");
  }
  return {};
}

bool aligned(const void* data, ir::DType dtype) {
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(ir::size_of(dtype)) == 0;
}

ir::Tensor copy(const Description& described, const void* data) {
  ir::Tensor out = ir::Tensor::zeros(described.dtype, described.extents);
  if (described.bytes > 0) std::memcpy(out.mutable_data(), data, described.bytes);
  return out;
}

Result<ir::Tensor> wrap(const Description& described, const void* data, std::shared_ptr<const void> keep) {
  HEDDLE_TRY(check_bools(described.dtype, data, described.bytes));
  if (keep == nullptr || described.bytes < kCopyBelow || !aligned(data, described.dtype))
    return copy(described, data);
  return ir::Tensor::borrow(described.dtype, described.extents, data, std::move(keep));
}

// Elements of a typed field, each of which must fit T; stored by their bits as T.
template <class T, class Field>
Result<ir::Tensor> from_field(const Description& described, const Field& field, const char* name) {
  const uint64_t elements = described.bytes / sizeof(T);
  if (static_cast<uint64_t>(field.size()) != elements) {
    return Status::invalid(name, " has ", field.size(), " elements, but the dims ", described.extents,
                           " ask for ", elements);
  }
  ir::Tensor out = ir::Tensor::zeros(described.dtype, described.extents);
  T* to = static_cast<T*>(out.mutable_data());
  for (int i = 0; i < field.size(); ++i) {
    const T value = static_cast<T>(field[i]);
    if constexpr (std::is_integral_v<T>) {
      if (value != field[i]) {
        return Status::invalid(name, "[", i, "] is ", field[i], ", which does not fit ", described.dtype);
      }
    }
    to[i] = value;
  }
  HEDDLE_TRY(check_bools(described.dtype, out.data(), described.bytes));
  return out;
}

Result<ir::Tensor> from_typed(const Description& described, const proto::TensorProto& tensor) {
  using ir::DType;
  switch (described.dtype) {
    case DType::kF32:
      return from_field<float>(described, tensor.float_data(), "float_data");
    case DType::kF64:
      return from_field<double>(described, tensor.double_data(), "double_data");
    case DType::kI64:
      return from_field<int64_t>(described, tensor.int64_data(), "int64_data");
    case DType::kI32:
      return from_field<int32_t>(described, tensor.int32_data(), "int32_data");
    case DType::kI16:
      return from_field<int16_t>(described, tensor.int32_data(), "int32_data");
    case DType::kI8:
      return from_field<int8_t>(described, tensor.int32_data(), "int32_data");
    case DType::kU8:
    case DType::kBool:
      return from_field<uint8_t>(described, tensor.int32_data(), "int32_data");
    case DType::kU32:
      return from_field<uint32_t>(described, tensor.uint64_data(), "uint64_data");
    case DType::kU64:
      return from_field<uint64_t>(described, tensor.uint64_data(), "uint64_data");
    case DType::kU16:
    case DType::kF16:
    case DType::kBF16:
      return from_field<uint16_t>(described, tensor.int32_data(), "int32_data");
  }
  return Status::internal("element type ", static_cast<int>(described.dtype), " has no typed field");
}

}  // namespace

Result<ir::Tensor> TensorData::read(const proto::TensorProto& tensor) { return convert(tensor, nullptr); }

Result<ir::Tensor> TensorData::take(proto::TensorProto& tensor) { return convert(tensor, &tensor); }

Result<ir::Tensor> TensorData::convert(const proto::TensorProto& tensor, proto::TensorProto* source) {
  if (tensor.has_segment())
    return Status::unsupported("tensors in segments are not supported; write one tensor");
  HEDDLE_TRY_ASSIGN(const Description described, describe(tensor, limits_));
  if (tensor.data_location() == proto::TensorProto::EXTERNAL) {
    HEDDLE_TRY_ASSIGN(auto found, external_.find(tensor, described.bytes));
    return wrap(described, found.bytes.data(), found.keep);
  }
  if (!tensor.has_raw_data()) return from_typed(described, tensor);
  const uint64_t size = tensor.raw_data().size();
  if (size != described.bytes) {
    return Status::invalid("raw_data has ", size, " bytes, but ", described.dtype, " with dims ",
                           described.extents, " needs ", described.bytes);
  }
  if (source == nullptr || size < kCopyBelow) return wrap(described, tensor.raw_data().data(), nullptr);
  auto bytes = std::make_shared<std::string>(std::move(*source->mutable_raw_data()));
  const void* data = bytes->data();
  return wrap(described, data, std::move(bytes));
}

}  // namespace heddle::onnx
