#include "drivers/host/onednn/weight_store.h"

#include <algorithm>

namespace heddle::host {

WeightStore::WeightStore(Ref<const Engine> engine, const ir::Graph& graph, Ref<device::Source> source,
                         Ref<const Nodes> nodes)
    : engine_(std::move(engine)), source_(std::move(source)) {
  if (nodes != nullptr) copies_ = std::make_shared<NodeCopies>(std::move(nodes), source_);
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

Result<WeightRoom> WeightStore::large_room(uint64_t bytes) {
  if (copies_ != nullptr) {
    const int node = copies_->here();
    HEDDLE_TRY_ASSIGN(Ref<std::byte> packed, copies_->take(node, bytes));
    copies_->add_packed(node, bytes);
    return WeightRoom(std::move(packed), bytes, copies_, node);
  }
  struct Counted {
    Ref<const void> charge;
    Ref<std::byte> piece;
  };
  auto counted = std::make_shared<Counted>();
  HEDDLE_TRY_ASSIGN(counted->charge, source_->charge(bytes));
  HEDDLE_TRY_ASSIGN(counted->piece, pages_.take(bytes));
  std::byte* const data = counted->piece.get();
  return WeightRoom(Ref<std::byte>(std::move(counted), data));
}

Result<WeightRoom> WeightStore::room(const void* weights, uint64_t bytes) {
  // What one shape folded goes with that shape; pieces of a span come back only with the whole span.
  if (owns(weights) && bytes >= kLargeBytes && large_bytes_ >= HugePages::kPageBytes)
    return large_room(bytes);
  HEDDLE_TRY_ASSIGN(Ref<device::Buffer> block, source_->allocate(bytes, device::MemoryKind::device));
  std::byte* const data = block->host();
  return WeightRoom(Ref<std::byte>(std::move(block), data));
}

}  // namespace heddle::host
