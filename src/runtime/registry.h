// registry.h: what all Runtimes of one process share: a Governor per device name. The one exception to "no
// process state".
//
//   Threads    Any, also after exit() began: the table is never destroyed.
//   Blocks     Never.
//   Lifetime   A Governor lives as long as a Ref to it; the next caller after that gets a new one.
//   Fork       A child of a process that had used the registry gets `unavailable`: locks and devices do not
//              survive a fork.
#pragma once

#include <string_view>

#include "runtime/admission/governor.h"

namespace heddle::runtime::registry {

// The first to name a limit decides it; 0 names none (a caller from outside that only wants exclusive()).
Result<Ref<Governor>> governor(std::string_view device, int limit);
ModelId next_model_id();
uint64_t next_stream_serial();

}  // namespace heddle::runtime::registry
