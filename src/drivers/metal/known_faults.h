// known_faults.h: what Apple's stack is known for, by version of macOS, and what this driver does about it.
//
//   What       Rows of a table in known_faults.mm: where each was seen, and since when it is mended, if it
//              is.
//   Threads    Pure.
#pragma once

#include <vector>

#include "device/device.h"

namespace heddle::metal {

std::vector<device::Fact> known_faults(int64_t macos_major);  // fault -> defence

}  // namespace heddle::metal
