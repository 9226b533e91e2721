#include "drivers/host/slot.h"

#include <algorithm>

#include "device/buffer.h"

namespace heddle::host {
namespace {

uint64_t padded(uint64_t bytes) {
  return (bytes + AlignedBytes::kAlignment - 1) / AlignedBytes::kAlignment * AlignedBytes::kAlignment;
}

Status grow(AlignedBytes& block, uint64_t bytes, uint64_t limit) {
  if (block.size() >= bytes) return {};
  block = {};  // first: the old one is worth nothing, and both may not fit
  HEDDLE_TRY_ASSIGN(block, AlignedBytes::make(bytes, limit));
  return {};
}

}  // namespace

Status HostSlot::prepare(const device::Program& program, NoLocksHeld) {
  inputs_.reserve(program.inputs().size());
  outputs_.reserve(program.outputs().size());
  return grow(arena_, program.slot_bytes(), memory_limit_);
}

bool HostSlot::usable(const device::View& view) {
  return view.is_contiguous() &&
         reinterpret_cast<uintptr_t>(view.data) % static_cast<uintptr_t>(ir::size_of(view.dtype)) == 0;
}

Result<const std::byte* const*> HostSlot::stage(std::span<const device::View> inputs) {
  inputs_.clear();
  uint64_t needed = 0;
  for (const device::View& view : inputs) {
    inputs_.push_back(view.data);
    if (!usable(view)) needed += padded(view.bytes());
  }
  if (needed == 0) return inputs_.data();
  HEDDLE_TRY(grow(staging_, needed, memory_limit_));
  std::byte* at = staging_.data();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (usable(inputs[i])) continue;
    copy_view(inputs[i], device::View::contiguous(nullptr, at, inputs[i].dtype, inputs[i].extents));
    inputs_[i] = at;
    at += padded(inputs[i].bytes());
  }
  return inputs_.data();
}

std::byte** HostSlot::outputs(std::span<const device::View> outputs) {
  outputs_.clear();
  for (const device::View& view : outputs) outputs_.push_back(view.data);
  return outputs_.data();
}

}  // namespace heddle::host
