// kernel_launch.h: a kernel with its parameters, as a stream or a graph runs it.
//
//   Order      Blocks come forwards or backwards, threads in an order of their own, by the seed; clusters as
//              blocks do. For the thread sanitizer the blocks of a launch run beside each other, where they
//              form no clusters.
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
  // A block, or the blocks of a cluster.
  void run_first(unsigned index, uint64_t order) const;  // is watched (touches.h)
  void run_one(unsigned index, uint64_t order) const;
  void run_apart(unsigned index, uint64_t order) const;
  void run_in_fibers(unsigned turned, unsigned last, uint64_t order) const;

  const HostKernel* kernel_ = nullptr;
  int device_ = 0;
  unsigned blocks_ = 0, threads_ = 0, shared_bytes_ = 0;
  std::vector<std::byte> params_;
};

// For `count` launches: the first of numbers that no other launch has.
uint64_t take_launch_numbers(size_t count);

}  // namespace heddle::cuda_double
