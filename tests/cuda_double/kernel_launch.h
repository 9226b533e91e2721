// kernel_launch.h: a kernel with its parameters, as a stream or a graph runs it.
#pragma once

#include <vector>

#include "drivers/cuda/driver/driver_api.h"
#include "tests/cuda_double/kernel_table.h"
#include "tests/cuda_double/stream.h"

namespace heddle::cuda_double {

class KernelLaunch {
 public:
  // As CUDA: the parameters are read now. False: CUDA takes no such launch.
  bool take(const cuda::KernelNode& from);
  void run(uint64_t number) const;

 private:
  const HostKernel* kernel_ = nullptr;
  unsigned blocks_ = 0, threads_ = 0, shared_bytes_ = 0;
  std::vector<std::byte> params_;
};

// For `count` launches: the first of numbers that no other launch has.
uint64_t take_launch_numbers(size_t count);

// Ends the process for the null stream, and without a context.
Stream* stream_of(cuda::StreamHandle handle, const char* what);

}  // namespace heddle::cuda_double
