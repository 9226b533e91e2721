// device_tensor.h: tensors in a device's memory, as Python's heddle.Tensor; DLPack without a copy.
//
//   In         An array of another library whose __dlpack_device__ is a CUDA GPU is lent to Heddle: its
//              memory is used where it lies, after all that the library's current stream was given.
//   Out        __dlpack__(stream=): that stream goes on when the values are there. 1 (or None) is CUDA's
//              legacy default stream, -1 orders nothing. The stream has to exist until the tensor is let go
//              of; the object of CuPy's current stream is kept until then.
#pragma once

#include <heddle/heddle.h>
#include "gil.h"

namespace heddle::python {

bool is_on_a_gpu(nanobind::handle array);  // of another library, by its __dlpack_device__
// Its memory, on `wanted` where that is the device, else on the process's own. Null: the latter.
Tensor lent(nanobind::handle array, std::string_view name, const Device* wanted);

}  // namespace heddle::python
