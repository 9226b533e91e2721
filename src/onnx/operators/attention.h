// attention.h: the rule of ONNX's Attention (opset 23 and later).
//
//   What       Operands of rank 3 ([batch, sequence, heads * size]) pass as they are; those of rank 4
//              ([batch, heads, sequence, size]) are brought to that form and back. With is_causal, query i
//              sees the keys up to i. Caches, soft caps and windows are refused by name.
//   Threads    A pure function of the call.
#pragma once

#include "onnx/call.h"

namespace heddle::onnx {

Status convert_attention(Call& call);

}  // namespace heddle::onnx
