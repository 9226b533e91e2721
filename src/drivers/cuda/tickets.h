// tickets.h: what graphs that tell of their end read (kernels/tell.h), in pinned memory.
//
//   What       A graph has one for as long as it lives, and then the next graph takes it: CUDA may wait for
//              work in flight before it takes it back.
//   Threads    Any.
//   Memory     What a lease gives back needs none of the host's.
//   Lifetime   Leases keep what they came from.
#pragma once

#include <list>
#include <memory>

#include "base/sync.h"
#include "drivers/cuda/kernels/tell.h"
#include "drivers/cuda/memory.h"

namespace heddle::cuda {

class Tickets : public std::enable_shared_from_this<Tickets> {
 public:
  explicit Tickets(Ref<const OpenDevice> device) : device_(std::move(device)) {}

  using Lease = Ref<Pinned>;  // of one Ticket, and a word that nobody reads behind it
  Result<Lease> take();
  static void write(const Lease& lease, const Ticket& ticket) { at(lease)->ticket = ticket; }
  static void write_nothing(const Lease& lease);  // who has it tells of nothing

 private:
  struct Page {
    Ticket ticket;
    uint64_t nowhere = 0;
  };
  static Page* at(const Lease& lease) { return static_cast<Page*>(lease->host()); }

  const Ref<const OpenDevice> device_;
  Guarded<std::list<Ref<Pinned>>, Rank::kBuffer> idle_;
};

}  // namespace heddle::cuda
