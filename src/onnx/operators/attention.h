// attention.h: Attention and RotaryEmbedding of opset 23 and later.
//
//   What       Attention becomes the IR's, which the drivers run as one piece; what that cannot say
//              (softcap, the scores as an output) is written out. Masks of causality, windows and padded
//              keys become one mask of bools, made of positions.
//   Threads    Pure functions; any thread.
#pragma once

#include "onnx/call.h"

namespace heddle::onnx {

Status convert_attention(Call& call);
Status convert_rotary_embedding(Call& call);

}  // namespace heddle::onnx
