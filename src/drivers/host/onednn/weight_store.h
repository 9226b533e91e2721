// weight_store.h: a model's weights in the layouts that primitives want, packed once however many shapes and
// threads ask.
//
//   What       get(weights, layout, make): the packed form of a constant. The key is the constant's address
//              and the layout in words.
//   Invariant  Only constants of the module's own graph, and of those inside it, are kept: their addresses
//              stay theirs for as long as the store lives. Others (folded for one shape) are packed for
//              who asks, and forgotten.
//   Memory     room() for a large weight of a large model lies on huge pages; such a model has at most 2 MiB
//              more resident for it, a small one nothing. All of it is the Source's, or counted by it. On a
//              machine of several memory nodes such weights are copied to each where that pays
//              (node_copies.h).
//   Threads    Any. Packing runs with no lock held; one thread packs, the others wait for it.
//   Lifetime   Held by the module; a Packed is kept alive by the steps that use it, and room by its holder.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/once_map.h"
#include "device/buffer.h"
#include "drivers/host/machine/huge_pages.h"
#include "drivers/host/onednn/node_copies.h"
#include "ir/graph.h"

namespace heddle::host {

struct Engine;        // oneDNN's, in onednn/engine.h
class ProductTuning;  // onednn/product_tuning.h

struct Packed {
  virtual ~Packed() = default;
  virtual uint64_t bytes() const = 0;
};

class WeightStore {
 public:
  // `nodes`: of the machine's memory; null: one.
  WeightStore(Ref<const Engine> engine, const ir::Graph& graph, Ref<device::Source> source,
              Ref<const Nodes> nodes = nullptr);
  // Keeps nothing.
  WeightStore(Ref<const Engine> engine, Ref<device::Source> source)
      : engine_(std::move(engine)), source_(std::move(source)) {}

  const Engine& engine() const { return *engine_; }

  // T is what `make` returns a Ref of; one layout text always means one T.
  template <class T, class Make>
  Result<Ref<const T>> get(const void* weights, std::string layout, Make&& make) {
    if (!owns(weights)) return make();
    HEDDLE_TRY_ASSIGN(auto packed,
                      packed_.get_or_make(Key{weights, std::move(layout)}, [&]() -> Result<Map::Made> {
                        HEDDLE_TRY_ASSIGN(Ref<const T> made, make());
                        const uint64_t bytes = made->bytes();
                        return Map::Made(Ref<const Packed>(std::move(made)), bytes);
                      }));
    return std::static_pointer_cast<const T>(packed);
  }

  // Memory for the packed form of `weights`, 64-byte aligned, contents undefined. On huge pages it comes back
  // with the store and all it gave out, not before.
  Result<WeightRoom> room(const void* weights, uint64_t bytes);
  std::string describe_copies() const { return copies_ == nullptr ? "" : copies_->describe(); }  // for people

  uint64_t bytes() const { return packed_.stats().bytes; }
  uint64_t count() const { return packed_.stats().count; }

 private:
  struct Key {
    const void* weights;
    std::string layout;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      return std::hash<const void*>()(key.weights) * 31 + std::hash<std::string>()(key.layout);
    }
  };
  using Map = OnceMap<Key, Packed, KeyHash>;

  static constexpr uint64_t kLargeBytes = 64 << 10;

  bool owns(const void* weights) const;
  Result<WeightRoom> large_room(uint64_t bytes);

  Ref<const Engine> engine_;
  Ref<device::Source> source_;
  std::vector<const void*> own_;  // sorted
  uint64_t large_bytes_ = 0;      // of the module's constants of kLargeBytes and more
  HugePages pages_;
  Ref<NodeCopies> copies_;  // null: the machine has one memory node
  Map packed_;
};

// With bf16: unsupported on a processor without instructions for it.
Result<Ref<const Engine>> make_engine(bool bf16, bool exact = false, Ref<ProductTuning> tuning = nullptr,
                                      int runs_at_once = 16);

}  // namespace heddle::host
