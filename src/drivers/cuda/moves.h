// moves.h: copies and fills as launches of one kernel.
//
//   Threads    Any.
#pragma once

#include "device/command_list.h"
#include "drivers/cuda/program.h"

namespace heddle::cuda {

// A copy of elements that lie one behind another, of which the copy engines are no faster than the kernel.
bool is_small_copy(const device::Copy& copy);

Status give_copy(const OpenDevice& device, const device::Copy& copy, StepTaker& to);
Status give_fill(const OpenDevice& device, const device::Fill& fill, StepTaker& to);

}  // namespace heddle::cuda
