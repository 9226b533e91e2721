// strided_copy.h: elements from one window to another of the same shape.
//
//   What       Views have strides in elements, zero and negative ones included; a copy joins axes that lie
//              behind one another and moves runs.
//   Threads    Pure functions over the caller's memory; the windows do not overlap.
//   Blocks     Never.
#pragma once

#include "device/buffer.h"

namespace heddle::host {

// Same dtype and extents, checked by the caller. Addresses need not be aligned to the element.
void copy_view(const device::View& from, const device::View& to);
void fill_view(const device::View& to, double value);

}  // namespace heddle::host
