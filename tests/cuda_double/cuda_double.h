// cuda_double.h: a CUDA driver for machines without a GPU, for tests.
//
//   What       A table of the functions that drivers/cuda calls. Streams run on threads of their own, in
//              their order and beside each other; kernels are the GPU's own source, compiled for the host.
//   Checks     It ends the process, saying why, where CUDA's behaviour is undefined or hides a mistake: a
//              call without a current context or with another device's (contexts.h), the null stream, an
//              address that is not allocated, what lies beyond a block (device_memory.h), memory that nothing
//              has written (touches.h), two streams that touch the same memory without an order
//              (work_order.h), a wait for an event that was never recorded, graphs that are gone or in two
//              hands (graph_double.h), a kernel that takes more shared memory than its launch gave, what
//              would break a stranger's capture, any call in a forked child.
//              Device addresses carry a mark that only kernels take away, so the host cannot touch what they
//              name. tests/cuda_driver/mistakes_test.cpp has a program for each check.
//   Faults     On request: faults.h.
//   Threads    Any.
//   Lifetime   The process.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "drivers/cuda/libraries/blas_lt_api.h"
#include "drivers/cuda/libraries/cudnn_api.h"

namespace heddle::cuda_double {

const cuda::DriverApi& api();
const void* image();        // for CudaOptions
const void* older_image();  // without the kernels that not every GPU can run

// A cuBLASLt that computes with plain loops. It has algorithms 0, 1 and 2, of which 1 is the fastest by its
// clock and 2 needs no workspace, and none for 16-bit types and an odd k. Results of two columns: 2 alone.
// The order of its sums depends on the number of columns, and so do an element's bits.
const cuda::BlasLtApi& blas_lt();
const Clock& blas_lt_clock();
int64_t blas_lt_runs(int algorithm);  // so far
// How long a kernel that multiplies or convolves takes by that clock, 25 us at first. Algorithms take 30, 10
// and 20 us, other kernels 1 us.
class ProductTime {  // so long, while it lives
 public:
  explicit ProductTime(Duration each);
  ~ProductTime();
  ProductTime(const ProductTime&) = delete;
  ProductTime& operator=(const ProductTime&) = delete;
};

// The same of those for few rows, which blocks of a cluster share; at first 26 us.
class FewRowsTime {  // so long, while it lives
 public:
  explicit FewRowsTime(Duration each);
  ~FewRowsTime();
  FewRowsTime(const FewRowsTime&) = delete;
  FewRowsTime& operator=(const FewRowsTime&) = delete;
};
class TensorTime {  // and of those of f32 on tensor cores; at first 27 us
 public:
  explicit TensorTime(Duration each);
  ~TensorTime();
  TensorTime(const TensorTime&) = delete;
  TensorTime& operator=(const TensorTime&) = delete;
};
class NoClusters {  // while it lives, modules are loaded as on GPUs that are too old for clusters
 public:
  NoClusters();
  ~NoClusters();
  NoClusters(const NoClusters&) = delete;
  NoClusters& operator=(const NoClusters&) = delete;
};

// A cuDNN that computes with plain loops, and has no depthwise convolutions though it says that it has. By
// that clock its algorithms take 20 and 12 us. It ends the process when two threads use one handle.
const cuda::CudnnApi& cudnn();
int64_t runs_of_cudnn();  // so far

void require_context(const char* what);  // ends the process if the thread has none

// The order in which threads of a block come is made of this and of the launch's number.
void set_seed(uint64_t seed);

// An event, from a stranger's side: recorded on a stream that stands still until reach().
cuda::EventHandle make_held_event();
void reach(cuda::EventHandle event);
bool is_reached(cuda::EventHandle event);

}  // namespace heddle::cuda_double
