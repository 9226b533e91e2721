#include "drivers/cuda/moves.h"

#include <array>
#include <cstring>

#include "drivers/cuda/kernels/map.h"
#include "drivers/cuda/kernels/tell.h"
#include "drivers/cuda/strides.h"
#include "ir/tensor.h"

namespace heddle::cuda {
namespace {

// From here on the copy engines are faster than a kernel.
constexpr uint64_t kLargeCopy = 512 * 1024;
// Up to here one block keeps the bus to the host as busy as it can be, and bytewise up to there.
constexpr uint64_t kMostOfOneBlock = 128 * 1024, kMostBytewise = 16 * 1024;

std::vector<int64_t> strides_of(const device::View& view) {
  return {view.strides.begin(), view.strides.end()};
}

// Calls stage what lies one element behind another: that allocates nothing.
MoveParams move_between(const device::View& from, const device::View& to) {
  if (from.is_contiguous() && to.is_contiguous()) return flat_move(to.extents.elements());
  return move_params(to.extents.span(), strides_of(from), strides_of(to));
}

Status give(const OpenDevice& device, int64_t size, MoveParams params, StepTaker& to) {
  const Launch launch = {
      device.kernels.move_of(size), blocks_for(params.count, device.multiprocessors), kThreads, 0, {}};
  return to.launch(launch, reinterpret_cast<std::byte*>(&params));
}

}  // namespace

bool is_small_copy(const device::Copy& copy) {
  return copy.to.bytes() < kLargeCopy && copy.from.is_contiguous() && copy.to.is_contiguous();
}

Status give_copy(const OpenDevice& device, const device::Copy& copy, StepTaker& to) {
  if (copy.to.extents.elements() == 0) return {};
  MoveParams params = move_between(copy.from, copy.to);
  params.from = copy.from.address();
  params.to = copy.to.address();
  return give(device, ir::size_of(copy.to.dtype), params, to);
}

bool can_tell(const device::Copy& copy) {
  const uint64_t bytes = copy.to.bytes();
  const bool bytewise = (bytes | copy.from.address() | copy.to.address()) % sizeof(uint32_t) != 0;
  return is_small_copy(copy) && bytes > 0 && bytes <= (bytewise ? kMostBytewise : kMostOfOneBlock) &&
         copy.to.buffer != nullptr && copy.to.buffer->memory().kind() == device::MemoryKind::staging;
}

Status give_copy_and_tell(const OpenDevice& device, const device::Copy& copy, Address ticket, StepTaker& to) {
  CopyAndTellParams params{copy.to.bytes(), copy.from.address(), copy.to.address(), ticket};
  const Launch launch = {device.kernels.copy_and_tell(), 1, CopyAndTell::kThreads, 0, {}};
  return to.launch(launch, reinterpret_cast<std::byte*>(&params));
}

Status give_fill(const OpenDevice& device, const device::Fill& fill, StepTaker& to) {
  if (fill.to.extents.elements() == 0) return {};
  const ir::Tensor value = ir::Tensor::scalar(fill.to.dtype, fill.value);
  MoveParams params = move_between(fill.to, fill.to);
  params.to = fill.to.address();
  std::memcpy(&params.value, value.data(), static_cast<size_t>(value.bytes()));
  return give(device, ir::size_of(fill.to.dtype), params, to);
}

}  // namespace heddle::cuda
