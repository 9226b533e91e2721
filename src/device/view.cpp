#include "device/view.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "ir/tensor.h"

namespace heddle::device {
namespace {

// Axes from outer to inner, those of one element dropped, neighbours joined where both sides allow.
struct Loop {
  struct Axis {
    int64_t count, from, to;
  };
  std::array<Axis, ir::kMaxRank> axes;
  size_t rank = 0;
};

Loop plan_loop(const View& from, const View& to) {
  Loop loop;
  for (size_t i = 0; i < to.extents.rank(); ++i) {
    const Loop::Axis axis{to.extents[i], from.strides[i], to.strides[i]};
    if (axis.count == 1) continue;
    if (loop.rank > 0) {
      Loop::Axis& outer = loop.axes[loop.rank - 1];
      if (outer.from == axis.from * axis.count && outer.to == axis.to * axis.count) {
        outer = {outer.count * axis.count, axis.from, axis.to};
        continue;
      }
    }
    loop.axes[loop.rank++] = axis;
  }
  return loop;
}

template <size_t kSize>
void move_run(const std::byte* from, std::byte* to, const Loop::Axis& axis) {
  if (axis.from == 1 && axis.to == 1) {
    std::memcpy(to, from, static_cast<size_t>(axis.count) * kSize);
    return;
  }
  const int64_t from_step = axis.from * static_cast<int64_t>(kSize),
                to_step = axis.to * static_cast<int64_t>(kSize);
  for (int64_t i = 0; i < axis.count; ++i) std::memcpy(to + i * to_step, from + i * from_step, kSize);
}

template <size_t kSize>
void move_elements(const std::byte* from, std::byte* to, const Loop& loop) {
  if (loop.rank == 0) {
    std::memcpy(to, from, kSize);
    return;
  }
  const Loop::Axis& inner = loop.axes[loop.rank - 1];
  std::array<int64_t, ir::kMaxRank> at{};
  for (;;) {
    move_run<kSize>(from, to, inner);
    size_t axis = loop.rank - 1;
    for (;;) {
      if (axis == 0) return;
      const Loop::Axis& a = loop.axes[--axis];
      from += a.from * static_cast<int64_t>(kSize);
      to += a.to * static_cast<int64_t>(kSize);
      if (++at[axis] < a.count) break;
      from -= a.from * a.count * static_cast<int64_t>(kSize);
      to -= a.to * a.count * static_cast<int64_t>(kSize);
      at[axis] = 0;
    }
  }
}

}  // namespace

View View::contiguous(Ref<Buffer> buffer, ir::DType dtype, const ir::Extents& extents, uint64_t offset) {
  return {std::move(buffer), offset, nullptr, dtype, extents, contiguous_strides(extents)};
}

View View::contiguous(std::byte* callers, ir::DType dtype, const ir::Extents& extents) {
  return {nullptr, 0, callers, dtype, extents, contiguous_strides(extents)};
}

bool View::is_contiguous() const {
  int64_t expected = 1;
  bool dense = true;
  for (size_t axis = extents.rank(); axis-- > 0;) {
    if (extents[axis] == 0) return true;
    // The stride of an axis of one element is never used.
    if (extents[axis] != 1 && strides[axis] != expected) dense = false;
    expected *= extents[axis];
  }
  return dense;
}

ir::Extents contiguous_strides(const ir::Extents& extents) {
  ir::Extents strides = extents;
  int64_t next = 1;
  for (size_t axis = extents.rank(); axis-- > 0;) {
    strides[axis] = next;
    next *= std::max<int64_t>(extents[axis], 1);
  }
  return strides;
}

void copy_view(const View& from, const View& to) {
  if (to.extents.elements() == 0) return;
  const Loop loop = plan_loop(from, to);
  switch (ir::size_of(to.dtype)) {
    case 1:
      return move_elements<1>(from.host(), to.host(), loop);
    case 2:
      return move_elements<2>(from.host(), to.host(), loop);
    case 4:
      return move_elements<4>(from.host(), to.host(), loop);
    default:
      return move_elements<8>(from.host(), to.host(), loop);
  }
}

void fill_view(const View& to, double value) {
  ir::Tensor one = ir::Tensor::scalar(to.dtype, value);
  View from = to;
  from.buffer = nullptr;
  from.callers = static_cast<std::byte*>(one.mutable_data());
  for (size_t i = 0; i < from.strides.rank(); ++i) from.strides[i] = 0;
  copy_view(from, to);
}

}  // namespace heddle::device
