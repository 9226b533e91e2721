// moves.h: copies and fills as launches of a kernel.
//
//   Threads    Any.
#pragma once

#include "device/command_list.h"
#include "drivers/cuda/program.h"

namespace heddle::cuda {

// A copy of elements that lie one behind another, of which the copy engines are no faster than the kernel.
bool is_small_copy(const device::Copy& copy);

// One that a single block makes as fast as several do, to where the host reads it: it may tell of its end.
bool can_tell(const device::Copy& copy);

Status give_copy(const OpenDevice& device, const device::Copy& copy, StepTaker& to);
// The same of one that can tell, by the ticket at that address (kernels/tell.h).
Status give_copy_and_tell(const OpenDevice& device, const device::Copy& copy, Address ticket, StepTaker& to);
Status give_fill(const OpenDevice& device, const device::Fill& fill, StepTaker& to);

}  // namespace heddle::cuda
