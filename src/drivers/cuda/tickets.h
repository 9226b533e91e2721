// tickets.h: what graphs that tell of their end read (kernels/tell.h), in pinned memory.
//
//   What       A graph has one for as long as it lives, and then the next graph takes it: CUDA may wait for
//              work in flight before it takes it back.
//   Threads    Any.
//   Lifetime   Leases keep what they came from.
#pragma once

#include <memory>
#include <vector>

#include "base/sync.h"
#include "drivers/cuda/kernels/tell.h"
#include "drivers/cuda/memory.h"

namespace heddle::cuda {

class Tickets : public std::enable_shared_from_this<Tickets> {
 public:
  explicit Tickets(Ref<const OpenDevice> device) : device_(std::move(device)) {}

  using Lease = Ref<Pinned>;  // of one Ticket
  Result<Lease> take();

 private:
  const Ref<const OpenDevice> device_;
  Guarded<std::vector<Ref<Pinned>>, Rank::kBuffer> idle_;
};

}  // namespace heddle::cuda
