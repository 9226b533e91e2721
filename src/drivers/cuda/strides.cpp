#include "drivers/cuda/strides.h"

#include <algorithm>
#include <cassert>

namespace heddle::cuda {

Walk walk_of(std::span<const int64_t> extents, const std::vector<std::vector<int64_t>>& strides) {
  Walk walk;
  walk.strides.resize(strides.size());
  walk.count = 1;
  std::vector<int64_t> kept;
  for (size_t axis = 0; axis < extents.size(); ++axis) {
    walk.count *= extents[axis];
    if (extents[axis] == 1) continue;
    // The axis before goes on where this one ends, in all tensors alike.
    const bool one = !kept.empty() && [&] {
      for (size_t k = 0; k < strides.size(); ++k) {
        if (walk.strides[k].back() != strides[k][axis] * extents[axis]) return false;
      }
      return true;
    }();
    if (one) {
      kept.back() *= extents[axis];
      for (size_t k = 0; k < strides.size(); ++k) walk.strides[k].back() = strides[k][axis];
    } else {
      kept.push_back(extents[axis]);
      for (size_t k = 0; k < strides.size(); ++k) walk.strides[k].push_back(strides[k][axis]);
    }
  }
  assert(kept.size() <= kAxes);
  walk.axes.rank = static_cast<int32_t>(kept.size());
  walk.axes.small = walk.count <= INT32_MAX ? 1 : 0;
  std::copy(kept.begin(), kept.end(), walk.axes.extents);
  return walk;
}

std::vector<int64_t> row_major(std::span<const int64_t> extents) {
  std::vector<int64_t> strides(extents.size());
  int64_t next = 1;
  for (size_t axis = extents.size(); axis-- > 0;) {
    strides[axis] = next;
    next *= extents[axis];
  }
  return strides;
}

void move_channels_last(std::vector<int64_t>& by_axis) {
  std::rotate(by_axis.begin() + 1, by_axis.begin() + 2, by_axis.end());
}

std::vector<int64_t> channels_last_strides(std::span<const int64_t> extents) {
  std::vector<int64_t> lying(extents.begin(), extents.end());
  move_channels_last(lying);
  std::vector<int64_t> strides = row_major(lying);
  std::rotate(strides.begin() + 1, strides.end() - 1, strides.end());
  return strides;
}

std::vector<int64_t> broadcast_strides(const ir::Extents& extents, size_t rank) {
  return broadcast_strides(extents, row_major(extents.span()), rank);
}

std::vector<int64_t> broadcast_strides(const ir::Extents& extents, std::vector<int64_t> strides,
                                       size_t rank) {
  if (extents.elements() == 1)
    return std::vector<int64_t>(rank, 0);  // Clip's limits may be [1] where x is []
  for (size_t axis = 0; axis < extents.rank(); ++axis) {
    if (extents[axis] == 1) strides[axis] = 0;
  }
  strides.insert(strides.begin(), rank - extents.rank(), 0);
  return strides;
}

MoveParams move_params(std::span<const int64_t> extents, const std::vector<int64_t>& from,
                       const std::vector<int64_t>& to) {
  const Walk walk = walk_of(extents, {from, to});
  MoveParams params;
  params.count = walk.count;
  params.axes = walk.axes;
  std::copy(walk.strides[0].begin(), walk.strides[0].end(), params.from_strides);
  std::copy(walk.strides[1].begin(), walk.strides[1].end(), params.to_strides);
  return params;
}

namespace {

Axes one_axis(int64_t count) {
  Axes axes;
  axes.rank = 1;
  axes.small = count <= INT32_MAX ? 1 : 0;
  axes.extents[0] = count;
  return axes;
}

}  // namespace

MoveParams flat_move(int64_t count) {
  MoveParams params;
  params.count = count;
  params.axes = one_axis(count);
  params.from_strides[0] = params.to_strides[0] = 1;
  return params;
}

MapParams flat_params(int64_t count) {
  MapParams params;
  params.count = count;
  params.axes = one_axis(count);
  return params;
}

unsigned blocks_for(int64_t count, int multiprocessors) {
  const int64_t most = int64_t{32} * multiprocessors;
  return static_cast<unsigned>(std::clamp((count + kThreads - 1) / kThreads, int64_t{1}, most));
}

}  // namespace heddle::cuda
