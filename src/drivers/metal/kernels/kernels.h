// kernels.h: our own Metal kernels: strided copies and fills, which Metal's blit encoder does not have.
//
//   What       One kernel for each size of element, compiled once per device from the source in kernels.mm.
//   Threads    Immutable.
#pragma once

#import <Metal/Metal.h>

#include <array>

#include "base/status.h"
#include "drivers/metal/defences.h"
#include "drivers/metal/kernels/walk.h"
#include "drivers/metal/owned.h"

namespace heddle::metal {

class Kernels {
 public:
  static Result<Kernels> make(id<MTLDevice> device, const Defences& defences);
  // `size`: of an element, 1, 2, 4 or 8 bytes.
  id<MTLComputePipelineState> copy(int64_t size) const { return copies_[variant(size)].get(); }
  id<MTLComputePipelineState> fill(int64_t size) const { return fills_[variant(size)].get(); }

 private:
  using Pipeline = Owned<id<MTLComputePipelineState>>;
  static size_t variant(int64_t size) { return size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3; }
  std::array<Pipeline, 4> copies_, fills_;
};

}  // namespace heddle::metal
