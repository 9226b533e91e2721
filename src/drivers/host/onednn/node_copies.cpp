#include "drivers/host/onednn/node_copies.h"

#include <cstring>
#include <utility>

namespace heddle::host {

Result<Ref<std::byte>> NodeCopies::take(int node, uint64_t bytes) {
  struct Counted {
    Ref<const void> charge;
    Ref<std::byte> piece;
  };
  auto counted = std::make_shared<Counted>();
  HEDDLE_TRY_ASSIGN(counted->charge, source_->charge(bytes));
  HEDDLE_TRY_ASSIGN(counted->piece, per_node(node).pages.take(bytes));
  std::byte* const data = counted->piece.get();
  return Ref<std::byte>(std::move(counted), data);
}

NodeCopies::Answer NodeCopies::ask(int node) {
  Atomic<Answer>& answer = per_node(node).answer;
  Answer seen = answer.load_acquire();
  if (seen != Answer::kNotYet || !answer.cas_strong_acq_rel(seen, Answer::kAsked)) return seen;
  constexpr uint64_t kShare = 4;  // of the node's free memory: the rest is for what calls need, and others
  const uint64_t packed = packed_bytes();
  Answer found = Answer::kPays;
  if (packed <= nodes_->cache_bytes(node)) {
    found = Answer::kInCache;
  } else if (packed > nodes_->free_bytes(node) / kShare) {
    found = Answer::kNoRoom;
  }
  answer.store_release(found);
  return found;
}

Ref<std::byte> NodeCopies::copy(int node, const std::byte* from, uint64_t bytes) {
  PerNode& mine = per_node(node);
  Result<Ref<std::byte>> room = take(node, bytes);
  if (!room.ok()) {
    mine.answer.store_release(Answer::kRefused);
    return nullptr;
  }
  std::memcpy(room->get(), from, bytes);
  mine.copied.add_relaxed(bytes);
  return *std::move(room);
}

uint64_t NodeCopies::packed_bytes() const {
  uint64_t sum = 0;
  for (int node = 0; node < count(); ++node) sum += per_node(node).packed.load_relaxed();
  return sum;
}

std::string NodeCopies::describe() const {
  constexpr uint64_t kMiB = 1 << 20;
  std::string out;
  for (int node = 0; node < count(); ++node) {
    const PerNode& its = per_node(node);
    const uint64_t packed = its.packed.load_relaxed(), copied = its.copied.load_relaxed();
    out += text(node == 0 ? "node " : "; node ", nodes_->name(node), ":");
    if (packed > 0) out += text(" ", packed / kMiB, " MiB packed");
    if (copied > 0) out += text(" ", copied / kMiB, " MiB copied");
    switch (its.answer.load_acquire()) {
      case Answer::kNotYet:
      case Answer::kAsked:
        if (packed == 0) out += " read by no call yet";
        break;
      case Answer::kPays:
        break;
      case Answer::kInCache:
        out += text(" no copy, since its last cache has ", nodes_->cache_bytes(node) / kMiB, " MiB");
        break;
      case Answer::kNoRoom:
        out += " no copy, since it would take more than a quarter of the node's free memory";
        break;
      case Answer::kRefused:
        out += " no more copies, since the memory limit is reached";
        break;
    }
  }
  return out;
}

WeightRoom::WeightRoom(Ref<std::byte> packed, uint64_t bytes, Ref<NodeCopies> copies, int node)
    : packed_(std::move(packed)), near_(std::make_shared<Near>()) {
  near_->packed = packed_.get();
  near_->bytes = bytes;
  near_->copies = std::move(copies);
  near_->of = std::make_unique<Copy[]>(static_cast<size_t>(near_->copies->count()));
  if (node != Nodes::kUnknown) near_->of[static_cast<size_t>(node)].data.store_release(packed_.get());
}

const std::byte* WeightRoom::Near::make(int node) {
  using Answer = NodeCopies::Answer;
  Copy& mine = of[static_cast<size_t>(node)];
  const Answer answer = copies->ask(node);
  if (answer == Answer::kAsked) return packed;
  bool claimed = false;
  if (!mine.claimed.cas_strong_acq_rel(claimed, true)) return packed;
  if (answer == Answer::kPays) mine.owner = copies->copy(node, packed, bytes);
  const std::byte* const data = mine.owner != nullptr ? mine.owner.get() : packed;
  mine.data.store_release(data);  // pairs with at()
  return data;
}

}  // namespace heddle::host
