// cluster_run.h: the blocks of a cluster, as the double runs them.
//
//   Order      One block runs at a time, until it has to wait for others or is over; which one is next a seed
//              decides. So what a block does without waiting for another is done as early as can be, and as
//              late: what a kernel does not await shows in its result, or in a put to a block that is not
//              open.
//   Threads    Each block has one; the first to run is the caller's.
//   Blocks     Until all blocks are over.
#pragma once

#include <functional>

#include "drivers/cuda/kernels/block.h"

namespace heddle::cuda_double {

struct ClusterShape {
  int64_t first, blocks;  // the cluster's first block, and how many the launch has
  int count;              // of the cluster
  int threads;
  size_t shared_bytes;
  uint64_t seed;
};
// What the kernel may not do; null: it did nothing of the kind.
const char* run_cluster(const ClusterShape& shape, const std::function<void(cuda::HostBlock&)>& kernel);

}  // namespace heddle::cuda_double
