// staging.h: buffers for the status words of runs.
//
//   What       take() gives a buffer of at least so many bytes; give() takes those of a flight back when it
//              is over. Kept by power of two, up to kKept bytes in all.
//   Threads    Any. One lock, held for a look into a list.
//   Blocks     take() allocates when there is none.
#pragma once

#import <Metal/Metal.h>

#include <array>
#include <list>

#include "base/status.h"
#include "base/sync.h"
#include "drivers/metal/owned.h"

namespace heddle::metal {

using Staged = Owned<id<MTLBuffer>>;

class Staging {
 public:
  static constexpr uint64_t kKept = uint64_t{64} << 20;
  Staging(id<MTLDevice> device, uint64_t limit) : device_(device), limit_(limit) {}
  Result<std::list<Staged>> take(uint64_t bytes);  // one
  void give(std::list<Staged> buffers);            // without memory of the host

 private:
  struct Idle {
    std::array<std::list<Staged>, 64> by_power;
    uint64_t bytes = 0;
  };
  const id<MTLDevice> device_;  // the owner's
  const uint64_t limit_;
  Guarded<Idle, Rank::kAllocator> idle_;
};

}  // namespace heddle::metal
