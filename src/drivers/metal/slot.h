// slot.h: a lane's state on Metal: none. MPSGraph owns what lies between operators, a flight what it stages.
#pragma once

#include "device/program.h"

namespace heddle::metal {

class MetalSlot final : public device::Slot {
 public:
  Status prepare(const device::Program&, NoLocksHeld) override { return {}; }
  uint64_t bytes() const override { return 0; }
};

}  // namespace heddle::metal
