// layout.h: the strides of what is computed element by element: those that PyTorch's CPU gives.
//
//   What       The CPU lays a result out as its operands lie: in the order of a permuted operand's axes, say.
//              Such a call is computed on views of its tensors whose axes are in that order. There the result
//              lies by rows, as every model's does; nothing is copied for it.
//   Source     ATen's TensorIterator decides, by the operands' sizes and strides. It allocates nothing here.
//   Threads    Any.
//   Blocks     Never.
#pragma once

#include <optional>

#include "call_key.h"
#include "eager.h"

namespace heddle::torch_backend {

// Whether the strides of the operator's results are the TensorIterator's to say.
bool is_elementwise(const c10::OperatorHandle& op, std::string_view entry, Overload::Kind kind);

// The axes of the result from the outermost in memory to the innermost. Nothing: the result lies by rows, or
// the call has a target that does not lie in one piece, or PyTorch refuses its shapes.
std::optional<Axes> order_of_result(const Overload& overload, c10::ArrayRef<c10::IValue> arguments,
                                    c10::ArrayRef<at::Tensor> targets);

// A view with the axes in this order, and leading axes of extent 1 for those that the tensor lacks. What has
// no axes, or is yet to get its size, is itself.
at::Tensor in_order(const at::Tensor& tensor, c10::IntArrayRef order);
// Back: of a tensor that nobody else has.
void undo_order(const at::Tensor& result, c10::IntArrayRef order);

}  // namespace heddle::torch_backend
