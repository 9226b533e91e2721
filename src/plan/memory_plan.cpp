#include "plan/memory_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace heddle::plan {
namespace {

bool overlap(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }

enum class Fit : uint8_t { kBest, kFirst };

// Places tensors in the given order, each in a gap between those alive with it that holds it (the smallest,
// or the first), else above them.
MemoryPlan place(std::span<const Lifetime> lifetimes, const std::vector<size_t>& order, uint64_t alignment,
                 Fit fit) {
  MemoryPlan plan;
  plan.offsets.assign(lifetimes.size(), 0);
  const auto aligned = [&](uint64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; };
  constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();
  std::vector<size_t> placed;  // by offset
  for (size_t tensor : order) {
    const uint64_t size = aligned(lifetimes[tensor].bytes);
    if (size == 0) continue;
    plan.bytes_apart += size;
    uint64_t gap_start = 0;
    uint64_t best = 0;
    uint64_t best_gap = kNone;
    for (size_t other : placed) {
      if (!overlap(lifetimes[tensor], lifetimes[other])) continue;
      const uint64_t start = plan.offsets[other];
      const bool better = best_gap == kNone || (fit == Fit::kBest && start - gap_start < best_gap);
      if (start > gap_start && start - gap_start >= size && better) {
        best = gap_start;
        best_gap = start - gap_start;
      }
      gap_start = std::max(gap_start, start + aligned(lifetimes[other].bytes));
    }
    const uint64_t offset = best_gap == kNone ? gap_start : best;
    plan.offsets[tensor] = offset;
    plan.bytes = std::max(plan.bytes, offset + size);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset,
                                   [&](uint64_t o, size_t p) { return o < plan.offsets[p]; }),
                  tensor);
  }
  return plan;
}

// The most bytes alive at one step: no plan can do with less.
uint64_t most_alive(std::span<const Lifetime> lifetimes) {
  uint64_t most = 0;
  for (const Lifetime& at : lifetimes) {
    uint64_t alive = 0;
    for (const Lifetime& l : lifetimes) alive += l.first <= at.first && at.first <= l.last ? l.bytes : 0;
    most = std::max(most, alive);
  }
  return most;
}

}  // namespace

MemoryPlan plan_memory(std::span<const Lifetime> lifetimes, uint64_t alignment) {
  std::vector<size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto at_most = most_alive(lifetimes);
  MemoryPlan best;
  const auto attempt = [&](auto&& rank) {
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return rank(lifetimes[a]) > rank(lifetimes[b]); });
    for (Fit fit : {Fit::kBest, Fit::kFirst}) {
      MemoryPlan plan = place(lifetimes, order, alignment, fit);
      if (best.offsets.empty() || plan.bytes < best.bytes) best = std::move(plan);
      if (best.bytes <= at_most) return true;
    }
    return false;
  };
  const auto steps = [](const Lifetime& l) { return static_cast<uint64_t>(l.last - l.first + 1); };
  if (attempt([](const Lifetime& l) { return l.bytes; })) return best;
  if (attempt([&](const Lifetime& l) { return l.bytes * steps(l); })) return best;
  if (attempt([&](const Lifetime& l) { return steps(l); })) return best;
  attempt([](const Lifetime& l) { return -int64_t{l.first}; });
  return best;
}

namespace {

// At most kMaxBytes each: a sum of 64 bits holds those of any graph that fits into memory.
uint64_t bytes_of(const ir::TensorType& type) {
  return static_cast<uint64_t>(type.extents()->elements() * ir::size_of(type.dtype));
}

}  // namespace

Status check_memory(const ir::Graph& specialised, uint64_t arena_bytes, uint64_t weight_bytes,
                    uint64_t bytes_max) {
  uint64_t outputs = 0;
  for (const ir::ValueId id : specialised.outputs) outputs += bytes_of(specialised.type(id));
  const uint64_t needed = arena_bytes + weight_bytes + outputs;
  if (needed <= bytes_max) return {};
  const ir::Node* largest = nullptr;
  uint64_t most = 0;
  for (const ir::Node& node : specialised.nodes) {
    for (const ir::ValueId id : node.outputs) {
      if (id == ir::kNoValue || bytes_of(specialised.type(id)) <= most) continue;
      most = bytes_of(specialised.type(id));
      largest = &node;
    }
  }
  return Status::exhausted(
      "a run needs ", needed, " bytes: ", weight_bytes, " of weights, ", arena_bytes, " between nodes, ",
      outputs, " of outputs",
      largest == nullptr ? std::string() : text(" (the most, ", most, ", by ", largest->describe(), ")"),
      "; the memory limit is ", bytes_max);
}

}  // namespace heddle::plan
