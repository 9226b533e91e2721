// reference_step.h: operators that run ir's own reference: slow and right.
//
//   What       reference_step() serves element types and forms that a kernel leaves out.
//              reference_lowerings() is the list of operators that have no kernel at all, since inference
//              hardly uses them (docs/limitations.md names them too).
//   Invariant  Operands are row-major: never channels_last (storage.cpp knows which nodes come here).
//   Threads    As step.h says. The reference and its tensors allocate while they run.
#pragma once

#include "drivers/host/lowering.h"

namespace heddle::host {

Result<std::unique_ptr<Step>> reference_step(const Lowering& lowering);

}  // namespace heddle::host
