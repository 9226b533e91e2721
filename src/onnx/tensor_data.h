// tensor_data.h: a TensorProto becomes an ir::Tensor.
//
//   What       raw_data, the typed fields and external data, for each element type. Sizes are checked
//              against the bytes that are there before memory is taken.
//   Lifetime   The Tensor stands alone: it owns its bytes, or keeps the mapped file alive.
//   Threads    One thread.
#pragma once

#include "base/status.h"
#include "ir/tensor.h"
#include "onnx/external_data.h"
#include "onnx/proto.h"
#include "onnx/reader.h"

namespace heddle::onnx {

class TensorData {
 public:
  TensorData(const Limits& limits, ExternalData& external) : limits_(limits), external_(external) {}

  Result<ir::Tensor> read(const proto::TensorProto& tensor);
  // The same, but may move large raw bytes out of `tensor` instead of copying them.
  Result<ir::Tensor> take(proto::TensorProto& tensor);

 private:
  Result<ir::Tensor> convert(const proto::TensorProto& tensor, proto::TensorProto* source);

  const Limits& limits_;
  ExternalData& external_;
};

}  // namespace heddle::onnx
