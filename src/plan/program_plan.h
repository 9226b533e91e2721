// program_plan.h: what a device's program would do, without making one; for people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/concrete_type.h"
#include "plan/cost.h"

namespace heddle::plan {

struct PlannedNode {
  std::string op;
  std::string name;  // of its first output
  std::vector<ir::ConcreteType> outputs;
  uint64_t step = 0;         // its number in a trace, from 1; 0: nothing runs, a renamed shape say
  std::optional<Cost> cost;  // of what runs
  std::string path;          // how the driver carries it out, and why so; "" where there is one way
};

struct ProgramPlan {
  std::vector<PlannedNode> nodes;       // in order
  std::optional<uint64_t> arena_bytes;  // of values between nodes; none: the vendor's library places them
  uint64_t arena_bytes_apart = 0;       // the same if no memory were used twice
  std::optional<uint64_t> slot_bytes;   // arena and what nodes need while they run; none: as above
  std::string weights;  // where their copies are, on a machine of several memory nodes; "": there is one
  std::string launches = {};  // for people: one by one, or as a graph, and why; "": the device has neither
};

}  // namespace heddle::plan
