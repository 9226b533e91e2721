#include "drivers/host/onednn/weight_store.h"

#include <algorithm>

#include "drivers/host/machine/aligned_bytes.h"

namespace heddle::host {

WeightStore::WeightStore(Ref<const Engine> engine, const ir::Graph& graph) : engine_(std::move(engine)) {
  ir::each_constant(graph, [&](const ir::Tensor& weight) {
    if (weight.elements() == 0) return;
    own_.push_back(weight.data());
    const auto bytes = static_cast<uint64_t>(weight.bytes());
    if (bytes >= kLargeBytes) large_bytes_ += bytes;
  });
  std::sort(own_.begin(), own_.end());
}

bool WeightStore::owns(const void* weights) const {
  return std::binary_search(own_.begin(), own_.end(), weights);
}

Result<Ref<std::byte>> WeightStore::room(const void* weights, uint64_t bytes) {
  // What one shape folded goes with that shape; pieces of a span come back only with the whole span.
  if (owns(weights) && bytes >= kLargeBytes && large_bytes_ >= HugePages::kPageBytes)
    return pages_.take(bytes);
  HEDDLE_TRY_ASSIGN(AlignedBytes made, AlignedBytes::make(bytes));
  const auto block = std::make_shared<AlignedBytes>(std::move(made));
  return Ref<std::byte>(block, block->data());
}

}  // namespace heddle::host
