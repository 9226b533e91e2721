#include "drivers/metal/lowering/windows.h"

#include <algorithm>

namespace heddle::metal {

Tensor cut_out(const Emit& e, Tensor x, const Axes& from, const ir::Extents& extents) {
  const ir::Extents has = extents_of(x);
  Axes before(has.rank(), 0), after(has.rank(), 0);
  for (size_t axis = 0; axis < has.rank(); ++axis) {
    const int64_t begin = std::clamp<int64_t>(from[axis], 0, has[axis] - 1);
    const int64_t end = std::clamp<int64_t>(from[axis] + extents[axis], begin + 1, has[axis]);
    x = e.slice(x, axis, begin, end - begin);
    before[axis] = begin - from[axis];
    after[axis] = from[axis] + extents[axis] - end;
  }
  return e.pad(x, before, after, 0);
}

std::vector<Tap> taps(const Emit& e, Tensor x, const ir::Window& window, const ir::Extents& out,
                      double outside) {
  const ir::Extents in = extents_of(x);
  Axes before(in.rank(), 0), after(in.rank(), 0);
  for (size_t i = 0; i < window.axes(); ++i) {
    before[2 + i] = window.pads(i, in[2 + i]).first;
    const int64_t reached = (out[2 + i] - 1) * window.strides[i] + window.reach(i);
    after[2 + i] = std::max<int64_t>(reached - before[2 + i] - in[2 + i], 0);
  }
  Tensor padded = e.pad(x, before, after, outside);
  std::vector<Tap> all;
  const int64_t count = ir::Extents(window.kernel).elements();
  for (int64_t flat = 0; flat < count; ++flat) {
    Tap tap{padded, std::vector<Axes>(window.axes())};
    int64_t rest = flat;
    for (size_t i = window.axes(); i-- > 0;) {
      const int64_t offset = rest % window.kernel[i] * window.dilations[i];
      rest /= window.kernel[i];
      tap.value = e.slice(tap.value, 2 + i, offset, out[2 + i], window.strides[i]);
      for (int64_t o = 0; o < out[2 + i]; ++o) {
        const int64_t at = o * window.strides[i] + offset - before[2 + i];
        tap.position[i].push_back(at >= 0 && at < in[2 + i] ? at : -1);
      }
    }
    all.push_back(std::move(tap));
  }
  return all;
}

}  // namespace heddle::metal
