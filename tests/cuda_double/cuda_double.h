// cuda_double.h: a CUDA driver for machines without a GPU, for tests.
//
//   What       A table of the functions that drivers/cuda calls. Streams run on threads of their own, in
//              their order and beside each other; kernels are the GPU's own source, compiled for the host.
//   Checks     It ends the process, saying why, where CUDA's behaviour is undefined or hides a mistake: a
//              call without a current context, the null stream, an address that is not allocated, a wait for
//              an event that was never recorded, a kernel that takes more shared memory than its launch gave.
//              Device addresses carry a mark that only kernels take away, so the host cannot touch what they
//              name; new memory is poisoned.
//   Threads    Any.
//   Lifetime   The process.
#pragma once

#include <cstdint>

#include "drivers/cuda/driver/driver_api.h"

namespace heddle::cuda_double {

const cuda::DriverApi& api();
const void* image();  // for CudaOptions

// The order in which threads of a block come is made of this and of the launch's number.
void set_seed(uint64_t seed);

// An event, from a stranger's side: recorded on a stream that stands still until reach().
cuda::EventHandle make_held_event();
void reach(cuda::EventHandle event);
bool is_reached(cuda::EventHandle event);

}  // namespace heddle::cuda_double
