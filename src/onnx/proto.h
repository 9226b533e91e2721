// proto.h: the classes that protoc makes of onnx.proto, under one short name.
//
//   What       The only include of generated code. Only this folder includes it; reader.h does not.
//   Threads    A message is a plain value: one writer, or many readers.
#pragma once

#include <onnx.pb.h>

#include <optional>
#include <string>

#include "ir/dtype.h"

namespace heddle::onnx {

namespace proto = ::onnx;

// ONNX's element types and ours. Nothing for those Heddle does not have (strings, complex, u16 ...).
std::optional<ir::DType> dtype_of(int data_type);
std::string data_type_name(int data_type);  // "FLOAT16", or "element type 77" when ONNX has no such type

}  // namespace heddle::onnx
