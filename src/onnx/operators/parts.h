// parts.h: short ways to write what an operator is made of.
//
//   What       Parts adds nodes on the side of a Call. The first failure is kept and everything after it is
//              skipped, so that a rule reads as a formula; take() hands out the result or that failure.
//   Shapes     Extents are taken from Shape nodes: they are followed while dimensions are symbols, and are
//              constants as soon as they are numbers.
//   Threads    One thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "onnx/call.h"

namespace heddle::onnx {

class Parts {
 public:
  using Id = ir::ValueId;
  explicit Parts(Call& call) : call_(call) {}

  Id node(std::string_view op, std::vector<Id> inputs, ir::Attributes attributes = {});
  Id ints(const std::vector<int64_t>& values);  // a constant, rank 1
  Id number(ir::DType dtype, double value);     // a constant, rank 0
  Id constant(ir::Tensor tensor) { return call_.constant(std::move(tensor), "constant"); }
  Id extents(Id x, size_t begin, size_t end);                          // of the axes [begin, end), i64
  Id extent(Id x, size_t axis) { return extents(x, axis, axis + 1); }  // rank 1, one element
  Id join(const std::vector<Id>& vectors);                             // of rank 1
  Id cast(Id x, ir::DType dtype);
  Id range(Id count, ir::DType dtype);  // 0, 1, .. below the i64 scalar or [1]
  Id scalar_of(Id vector);              // [1] -> []
  Id unsqueeze(Id x, const std::vector<int64_t>& axes);
  Id squeeze(Id x, const std::vector<int64_t>& axes);
  Id transpose(Id x, const std::vector<int64_t>& perm);
  Id pair(std::string_view op, Id a, Id b) { return node(op, {a, b}); }

  ir::TensorType type(Id x) const {  // of rank 0 after a failure
    return x == ir::kNoValue ? ir::TensorType() : call_.value(x).type;
  }
  const Status& status() const { return status_; }
  void fail(Status status);
  // The node's output: x under the node's own name.
  Status emit(Id x, size_t output = 0);

 private:
  Call& call_;
  Status status_;
};

}  // namespace heddle::onnx
