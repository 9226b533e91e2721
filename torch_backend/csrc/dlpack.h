// dlpack.h: tensors of device "heddle" on a GPU <-> other libraries' arrays there, without a copy.
//
//   What       to_dlpack() describes a tensor's memory as CUDA's. The consumer names one of its streams. Work
//              that it is given next finds the values; Heddle uses the memory again after all the work that
//              it was given until the consumer let go. from_dlpack() makes a tensor of another library's
//              memory, which goes back after Heddle's last use of it.
//   Threads    Any, with the GIL.
//   Blocks     to_dlpack() without a stream: until the values are there. Else neither waits for the device.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace heddle::torch_backend {

void bind_dlpack(pybind11::module_& m);

}  // namespace heddle::torch_backend
