// windows.h: what convolutions and pools share: windows as slices, and parts cut out of a larger tensor.
//
//   What       taps() gives one view of the input for each tap of the window, of the output's extents: what
//              MPSGraph's pools do not do is done over these.
//   Threads    Pure, but for the graph that is built.
#pragma once

#include <vector>

#include "drivers/metal/lowering/lowering.h"
#include "ir/window.h"

namespace heddle::metal {

// The part of x that begins at `from` (which may lie before it) with `extents`; zeros where x has nothing.
Tensor cut_out(const Emit& e, Tensor x, const Axes& from, const ir::Extents& extents);

struct Tap {
  Tensor value;                // of the output's extents
  std::vector<Axes> position;  // by spatial axis and output position: the element's, -1 outside
};
// x [n, c, ..] under a window that gives `out`; `outside` is what padding holds.
std::vector<Tap> taps(const Emit& e, Tensor x, const ir::Window& window, const ir::Extents& out,
                      double outside);

}  // namespace heddle::metal
