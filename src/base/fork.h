// fork.h: are we a child of the process that made this?
//
//   What       A number that grows by one in every forked child. An owner of threads or locks keeps the value
//              from its construction and compares.
//   Why        fork() copies one thread: locks that others held stay locked, and their threads are gone.
//              Waiting for either hangs.
//   Threads    Any; one relaxed load. Only the child's first thread, inside fork(), writes it.
//   Blocks     Never.
#pragma once

#include <cstdint>

#include "base/atomic.h"
#include "base/status.h"

namespace heddle {

inline constinit Atomic<uint32_t> fork_count{0};  // orders nothing: a child has one thread when it changes

uint32_t fork_generation();
Status forked();  // the error of a child of a process that had used Heddle

}  // namespace heddle
