// einsum.h: Einsum, written with operators that are there anyway.
//
//   What       Operands are taken from left to right. Extents that an ellipsis stands for broadcast.
//   Threads    As operators.h.
#pragma once

#include "onnx/call.h"

namespace heddle::onnx {

Status convert_einsum(Call& call);

}  // namespace heddle::onnx
