// node_copies.h: a model's packed weights, near to each thread that reads them.
//
//   Why        A processor reads its own node's memory faster than another's, and all nodes together have as
//              many times the bandwidth of one. A call of few rows is as fast as its weights are read.
//   What       WeightRoom: where one packed weight lies. get() is where it was packed, for who packs it;
//              here() is what the calling thread reads: its own node's copy, or else what was packed.
//   Helpers    Read the copy of the node that they run on, and not their caller's: a lone caller's loop has
//              then the bandwidth of all nodes. What a chunk computes does not depend on which copy it reads.
//              A step that asks for the address before it divides its loop reads its caller's.
//   Pays       Where the weights packed so far are more than the node's last cache, which else keeps them,
//              and at most a quarter of what is free on that node. Asked once for each model and node, by the
//              first thread that reads a weight there.
//   Made       On the first read by a thread of that node, into pages that nobody has written before: the
//              system places a page where it is first written. That needs no call that containers forbid, as
//              they do mbind, and obeys numactl. One thread copies a weight; others that come meanwhile read
//              what was packed and wait for nobody.
//   Counted    In the Source, as are the weights. What it refuses is not asked for again.
//   Cost       With one node: none. here() is get().
//   Threads    here(): any, once the weight is packed.
//   Lifetime   Copies go with their WeightRoom.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/atomic.h"
#include "device/buffer.h"
#include "drivers/host/machine/huge_pages.h"
#include "drivers/host/machine/nodes.h"

namespace heddle::host {

class NodeCopies {
 public:
  NodeCopies(Ref<const Nodes> nodes, Ref<device::Source> source)
      : nodes_(std::move(nodes)),
        source_(std::move(source)),
        per_node_(std::make_unique<PerNode[]>(static_cast<size_t>(nodes_->count()))) {}

  // Counted pages for what the calling thread writes first, on `node` (kUnknown counts as the first one).
  Result<Ref<std::byte>> take(int node, uint64_t bytes);
  int here() const { return nodes_->here(); }
  int count() const { return nodes_->count(); }
  // On `node`, kUnknown as above.
  void add_packed(int node, uint64_t bytes) { per_node(node).packed.add_relaxed(bytes); }
  uint64_t packed_bytes() const;

  enum class Answer : uint8_t { kNotYet, kAsked, kPays, kInCache, kNoRoom, kRefused };
  // kAsked: another thread is at it.
  Answer ask(int node);
  // Null from the Source's first refusal on.
  Ref<std::byte> copy(int node, const std::byte* from, uint64_t bytes);
  std::string describe() const;  // for people

 private:
  struct alignas(64) PerNode {
    Atomic<Answer> answer{Answer::kNotYet};  // claimed by the thread that asks, then final but for kRefused
    Atomic<uint64_t> packed{0};              // bytes given out to pack in there
    Atomic<uint64_t> copied{0};              // bytes; for people
    HugePages pages;
  };

  PerNode& per_node(int node) const { return per_node_[static_cast<size_t>(node < 0 ? 0 : node)]; }

  const Ref<const Nodes> nodes_;
  const Ref<device::Source> source_;
  const std::unique_ptr<PerNode[]> per_node_;
};

class WeightRoom {
 public:
  WeightRoom() = default;
  explicit WeightRoom(Ref<std::byte> packed) : packed_(std::move(packed)) {}
  // `node`: where it is packed.
  WeightRoom(Ref<std::byte> packed, uint64_t bytes, Ref<NodeCopies> copies, int node);

  std::byte* get() const { return packed_.get(); }
  const std::byte* here() const {
    return near_ == nullptr || OnNode::now() == Nodes::kUnknown ? packed_.get() : near_->at(OnNode::now());
  }
  friend bool operator==(const WeightRoom& room, std::nullptr_t) { return room.packed_ == nullptr; }

 private:
  struct Copy {
    Atomic<const std::byte*> data{nullptr};  // what the node reads, set once, release; null: not decided
    Atomic<bool> claimed{false};             // a thread makes it
    Ref<std::byte> owner;                    // written by that thread before data
  };
  struct Near {
    const std::byte* packed;
    uint64_t bytes;
    Ref<NodeCopies> copies;
    std::unique_ptr<Copy[]> of;  // by node

    const std::byte* at(int node) {
      const std::byte* const data = of[static_cast<size_t>(node)].data.load_acquire();
      return data != nullptr ? data : make(node);
    }
    const std::byte* make(int node);
  };
  Ref<std::byte> packed_;
  Ref<Near> near_;  // null: one for all nodes
};

}  // namespace heddle::host
