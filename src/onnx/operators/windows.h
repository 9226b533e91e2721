// windows.h: what the rules of convolution's family share.
//
//   Threads    Pure functions of the call.
#pragma once

#include "onnx/call.h"

namespace heddle::onnx {

// NOTSET means that pads are given, which is what an absent auto_pad means too.
Status normal_padding(Call& call);

}  // namespace heddle::onnx
