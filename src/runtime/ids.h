// ids.h: the names of a model and of a stream. Never reused within a process.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "base/status.h"

namespace heddle::runtime {

enum class ModelId : uint64_t { kForeign = 0 };  // kForeign: a caller from outside, see Governor::exclusive

struct StreamId {
  static constexpr int kForeign = std::numeric_limits<int>::min();  // in step with another library's
  int index = 0;  // place in the pool, 0 is the default stream; lanes' own streams count -1, -2 ... down
  uint64_t serial = 0;  // differs between a failed stream and the one that replaced it
  friend bool operator==(const StreamId&, const StreamId&) = default;
  friend std::string to_string(const StreamId& id) {
    if (id.index == kForeign) return "stream of another library";
    return id.index < 0 ? text("stream of lane ", -1 - id.index) : text("stream ", id.index);
  }
};

}  // namespace heddle::runtime
