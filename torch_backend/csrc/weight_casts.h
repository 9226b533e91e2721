// weight_casts.h: f32 weights in the dtype that autocast computes in, cast once until they are written again.
//
//   What       A storage of this device counts the writes that the device was given for it, by whatever
//              tensor they went (`.data` has a version of its own in PyTorch), and keeps casts with the
//              count that they were made at.
//   Lifetime   A cast goes with its weight's storage, or when another one takes its place.
//   Threads    Any. A weight is cast once however many threads ask; the others wait for the one that does.
//   Blocks     As the cast does.
#pragma once

#include <ATen/core/Tensor.h>

namespace heddle::torch_backend {

// A cast of `weight` that every caller shares: not to be written to. Without gradients.
at::Tensor cast_once(const at::Tensor& weight, c10::ScalarType type);
uint64_t weight_casts();  // made since the process began

}  // namespace heddle::torch_backend
