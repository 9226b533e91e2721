// strides.h: how tensors lie in memory, in the words of the kernels (kernels/walk.h).
#pragma once

#include <span>
#include <vector>

#include "device/view.h"
#include "drivers/cuda/kernels/map.h"
#include "ir/tensor_type.h"

namespace heddle::cuda {

static_assert(static_cast<int>(Type::kBool) == static_cast<int>(ir::DType::kBool) &&
              static_cast<int>(Type::kI64) == static_cast<int>(ir::DType::kI64));
inline Type type_of(ir::DType dtype) { return static_cast<Type>(dtype); }

// Of several tensors that are walked together: the fewest axes that say the same. strides[k][axis].
struct Walk {
  Axes axes;
  std::vector<std::vector<int64_t>> strides;
  int64_t count = 0;
};
Walk walk_of(std::span<const int64_t> extents, const std::vector<std::vector<int64_t>>& strides);

// Strides of a row-major tensor that is broadcast to an output of rank `rank`; one element has any rank.
std::vector<int64_t> broadcast_strides(const ir::Extents& extents, size_t rank);
// The same of one with strides of its own.
std::vector<int64_t> broadcast_strides(const ir::Extents& extents, std::vector<int64_t> strides, size_t rank);
std::vector<int64_t> row_major(std::span<const int64_t> extents);
// By the axes of [N, C, plane..], of a tensor that lies [N, plane.., C].
std::vector<int64_t> channels_last_strides(std::span<const int64_t> extents);
// What is told by the axes of [N, C, plane..], in the order [N, plane.., C].
void move_channels_last(std::vector<int64_t>& by_axis);

// The launch that moves elements of `size` bytes; addresses are the caller's.
MoveParams move_params(std::span<const int64_t> extents, const std::vector<int64_t>& from,
                       const std::vector<int64_t>& to);

// The same of `count` elements that lie one behind another on both sides.
MoveParams flat_move(int64_t count);

// Of `count` elements that are walked in order; strides and addresses are the caller's.
MapParams flat_params(int64_t count);

// Blocks of kThreads threads for `count` elements.
inline constexpr unsigned kThreads = 256;
unsigned blocks_for(int64_t count, int multiprocessors);

}  // namespace heddle::cuda
