// ids.h: the names of a model and of a stream. Never reused within a process.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace heddle::runtime {

enum class ModelId : uint64_t { kForeign = 0 };  // kForeign: a caller from outside, see Governor::exclusive

struct StreamId {
  int index = 0;  // place in the pool, 0 is the default stream; lanes' own streams count -1, -2 ... down
  uint64_t serial = 0;  // differs between a failed stream and the one that replaced it
  friend bool operator==(const StreamId&, const StreamId&) = default;
  friend std::string to_string(const StreamId& id) {
    return id.index < 0 ? text("stream of lane ", -1 - id.index) : text("stream ", id.index);
  }
};

}  // namespace heddle::runtime
