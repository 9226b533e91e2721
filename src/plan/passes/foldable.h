// foldable.h: which nodes can be computed while compiling, shared by fold() and specialize().
//
//   Threads    Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ir/graph.h"

namespace heddle::plan {

// The outputs as constants, when they are integers that static shapes determine.
std::optional<std::vector<ir::Tensor>> known_from_shapes(std::span<const ir::Value* const> outputs);

// About how many elements the reference touches; INT64_MAX when a shape is not static. `in` may hold nulls.
int64_t reference_work(const ir::Node& node, std::span<const ir::Value* const> in,
                       std::span<const ir::Value* const> out);

}  // namespace heddle::plan
