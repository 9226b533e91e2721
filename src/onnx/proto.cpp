#include "onnx/proto.h"

#include "base/status.h"

namespace heddle::onnx {

std::optional<ir::DType> dtype_of(int data_type) {
  using T = proto::TensorProto;
  switch (data_type) {
    case T::FLOAT:
      return ir::DType::kF32;
    case T::FLOAT16:
      return ir::DType::kF16;
    case T::BFLOAT16:
      return ir::DType::kBF16;
    case T::DOUBLE:
      return ir::DType::kF64;
    case T::INT8:
      return ir::DType::kI8;
    case T::UINT8:
      return ir::DType::kU8;
    case T::INT16:
      return ir::DType::kI16;
    case T::INT32:
      return ir::DType::kI32;
    case T::INT64:
      return ir::DType::kI64;
    case T::UINT16:
      return ir::DType::kU16;
    case T::UINT32:
      return ir::DType::kU32;
    case T::UINT64:
      return ir::DType::kU64;
    case T::BOOL:
      return ir::DType::kBool;
    default:
      return std::nullopt;
  }
}

std::string data_type_name(int data_type) {
  if (!proto::TensorProto::DataType_IsValid(data_type)) return text("element type ", data_type);
  return proto::TensorProto::DataType_Name(static_cast<proto::TensorProto::DataType>(data_type));
}

}  // namespace heddle::onnx
