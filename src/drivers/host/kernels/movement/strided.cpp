#include "drivers/host/kernels/movement/strided.h"

#include <algorithm>
#include <cstring>

namespace heddle::host {

namespace {

template <class T>
void fill_as(std::byte* to, const std::byte* element, int64_t count) {
  T value;
  std::memcpy(&value, element, sizeof(T));
  std::fill_n(reinterpret_cast<T*>(to), count, value);
}

template <class T>
void step_as(std::byte* to, const std::byte* from, int64_t count, int64_t stride) {
  T* d = reinterpret_cast<T*>(to);
  const T* s = reinterpret_cast<const T*>(from);
  for (int64_t i = 0; i < count; ++i) d[i] = s[i * stride];
}

void copy_run(std::byte* to, const std::byte* from, int64_t count, int64_t stride, int64_t size) {
  if (stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(count * size));
  } else if (stride == 0) {
    fill(to, from, count, size);
  } else {
    switch (size) {
      case 1:
        step_as<uint8_t>(to, from, count, stride);
        break;
      case 2:
        step_as<uint16_t>(to, from, count, stride);
        break;
      case 4:
        step_as<uint32_t>(to, from, count, stride);
        break;
      default:
        step_as<uint64_t>(to, from, count, stride);
        break;
    }
  }
}

}  // namespace

void fill(std::byte* to, const std::byte* element, int64_t count, int64_t size) {
  switch (size) {
    case 1:
      fill_as<uint8_t>(to, element, count);
      break;
    case 2:
      fill_as<uint16_t>(to, element, count);
      break;
    case 4:
      fill_as<uint32_t>(to, element, count);
      break;
    default:
      fill_as<uint64_t>(to, element, count);
      break;
  }
}

std::array<int64_t, ir::kMaxRank> row_major(const ir::Extents& extents) {
  std::array<int64_t, ir::kMaxRank> strides{};
  int64_t step = 1;
  for (size_t axis = extents.rank(); axis-- > 0;) {
    strides[axis] = step;
    step *= extents[axis];
  }
  return strides;
}

Strided Strided::make(std::span<const int64_t> extents, std::span<const int64_t> strides, int64_t start) {
  Strided view;
  view.start = start;
  for (size_t axis = 0; axis < extents.size(); ++axis) {
    if (extents[axis] == 1) continue;
    if (view.rank > 0 && view.strides[view.rank - 1] == strides[axis] * extents[axis]) {
      view.extents[view.rank - 1] *= extents[axis];
      view.strides[view.rank - 1] = strides[axis];
    } else {
      view.extents[view.rank] = extents[axis];
      view.strides[view.rank++] = strides[axis];
    }
  }
  const bool scalar = view.rank == 0 || (view.rank == 1 && view.strides[0] == 0);
  const bool linear = view.rank == 1 && view.strides[0] == 1;
  view.form = scalar ? Form::kScalar : linear ? Form::kLinear : Form::kOther;
  return view;
}

Strided Strided::broadcast(const ir::Extents& operand, const ir::Extents& out) {
  const auto own = row_major(operand);
  std::array<int64_t, ir::kMaxRank> strides{};
  const size_t lead = out.rank() - operand.rank();
  for (size_t axis = 0; axis < operand.rank(); ++axis)
    strides[lead + axis] = operand[axis] == 1 ? 0 : own[axis];
  return make(out.span(), strides);
}

int64_t Strided::offset_of(int64_t index) const {
  int64_t offset = start;
  for (size_t axis = rank; axis-- > 0;) {
    offset += index % extents[axis] * strides[axis];
    index /= extents[axis];
  }
  return offset;
}

int64_t Strided::run_at(int64_t index) const {
  if (rank == 0 || strides[rank - 1] != 1) return 1;
  return extents[rank - 1] - index % extents[rank - 1];
}

void Strided::copy(const std::byte* base, int64_t begin, int64_t count, int64_t size, std::byte* to) const {
  if (count == 0) return;
  if (rank == 0) {
    fill(to, base + start * size, count, size);
    return;
  }
  std::array<int64_t, kMaxAxes> at{};
  int64_t index = begin;
  int64_t offset = start;
  for (size_t axis = rank; axis-- > 0;) {
    at[axis] = index % extents[axis];
    offset += at[axis] * strides[axis];
    index /= extents[axis];
  }
  const size_t inner = rank - 1;
  while (true) {
    const int64_t run = std::min(count, extents[inner] - at[inner]);
    copy_run(to, base + offset * size, run, strides[inner], size);
    count -= run;
    if (count == 0) return;
    to += run * size;
    offset -= at[inner] * strides[inner];
    at[inner] = 0;
    for (size_t axis = inner; axis-- > 0;) {
      offset += strides[axis];
      if (++at[axis] < extents[axis]) break;
      offset -= extents[axis] * strides[axis];
      at[axis] = 0;
    }
  }
}

}  // namespace heddle::host
