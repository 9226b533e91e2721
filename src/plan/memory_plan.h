// memory_plan.h: offsets in one arena for tensors with known lifetimes, so that those alive at once never
// overlap.
//
//   Algorithm  Greedy by size, largest first, best-fitting gap (Pisarchyk and Lee, "Efficient Memory
//              Management for Deep Neural Net Inference", 2020: "greedy by size for offset calculation").
//              Where that is not the least possible, the same with the longest-lived or earliest first; the
//              smallest plan counts.
//   Threads    Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"

namespace heddle::plan {

struct Lifetime {
  uint64_t bytes;
  int first;  // step that makes it
  int last;   // last step that reads it, >= first
};

struct MemoryPlan {
  std::vector<uint64_t> offsets;  // one per Lifetime, multiples of the alignment
  uint64_t bytes = 0;             // of the whole arena
  uint64_t bytes_apart = 0;       // of one where every tensor has a place of its own
};

MemoryPlan plan_memory(std::span<const Lifetime> lifetimes, uint64_t alignment = 64);

// exhausted when a run needs more than `bytes_max`: `arena_bytes` for intermediates, `weight_bytes`, and the
// outputs of `specialised`. Names the node with the largest output.
Status check_memory(const ir::Graph& specialised, uint64_t arena_bytes, uint64_t weight_bytes,
                    uint64_t bytes_max);

}  // namespace heddle::plan
