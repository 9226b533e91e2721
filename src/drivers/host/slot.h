// slot.h: what one run on the host changes: an arena, and room for strided inputs made contiguous.
//
//   Invariant  arena() is at least as large as the largest program it was prepared for.
//   Threads    Its owner of the moment.
//   Blocks     prepare() and stage() may allocate; with contiguous inputs and a prepared slot, a run
//              allocates nothing.
//   Lifetime   Staged inputs are valid until the next run.
#pragma once

#include <span>
#include <vector>

#include "device/buffer.h"
#include "device/program.h"
#include "drivers/host/machine/aligned_bytes.h"

namespace heddle::host {

class HostSlot final : public device::Slot {
 public:
  explicit HostSlot(uint64_t memory_limit) : memory_limit_(memory_limit) {}

  Status prepare(const device::Program& program, NoLocksHeld) override;
  uint64_t bytes() const override { return arena_.size() + staging_.size(); }

  std::byte* arena() const { return arena_.data(); }
  bool holds(const device::Program& program) const { return arena_.size() >= program.slot_bytes(); }

  // Addresses of the views' elements, contiguous and aligned to the element: copied into the staging area
  // where they are not.
  Result<const std::byte* const*> stage(std::span<const device::View> inputs);
  std::byte** outputs(std::span<const device::View> outputs);

 private:
  static bool usable(const device::View& view);

  uint64_t memory_limit_;
  AlignedBytes arena_;
  AlignedBytes staging_;
  std::vector<const std::byte*> inputs_;
  std::vector<std::byte*> outputs_;
};

}  // namespace heddle::host
