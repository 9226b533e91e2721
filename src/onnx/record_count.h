// record_count.h: how many objects a file would become, before it becomes them.
//
//   What       Two bytes of a file can declare a node that takes hundreds in memory. This walks the wire
//              format alone, and refuses a file that declares too many records.
//   Threads    A pure function; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace heddle::onnx {

Status check_records(std::span<const std::byte> bytes, uint64_t limit);

}  // namespace heddle::onnx
