// packed_weight.h: a constant weight, or a part of one, in the layout a kernel asks for.
//
//   What       pack_weight() reorders a constant once per layout; the WeightStore keeps it.
//   Threads    Any; packing runs with no lock held.
#pragma once

#include <string_view>

#include "drivers/host/onednn/descriptors.h"
#include "drivers/host/onednn/engine.h"
#include "drivers/host/onednn/weight_store.h"

namespace heddle::host {

struct PackedWeight final : Packed {
  uint64_t bytes() const override { return size + 256; }
  Ref<std::byte> data;
  uint64_t size = 0;
};

// The weight lies `offset` bytes into the constant as `plain` says. `kind` sets apart readings of one
// constant that come to the same layout.
Result<Ref<const PackedWeight>> pack_weight(WeightStore& weights, std::string_view kind,
                                            const std::byte* constant, int64_t offset,
                                            const dnnl::memory::desc& plain,
                                            const dnnl::memory::desc& wanted);

}  // namespace heddle::host
