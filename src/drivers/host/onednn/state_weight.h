// state_weight.h: what a recurrent step multiplies its state with, so that slices of it are weights too.
//
//   What       A StatePart is some gates of r, [gates * hidden, hidden], turned. Packed slice by slice, and
//              gate by gate in each, the columns of a slice's hidden elements lie side by side: where kernels
//              want columns in blocks, one block after the other, they are a weight of their own.
//   Threads    Any; packing runs with no lock held.
#pragma once

#include <vector>

#include "drivers/host/onednn/packed_weight.h"
#include "drivers/host/onednn/primitive.h"

namespace heddle::host {

// Some of the hidden elements.
struct Slice {
  int64_t first, count;
};
std::vector<Slice> slices_of(const Slice& all, int64_t slice);

struct BlockedState;

struct StatePart {
  int64_t first = 0, gates = 0, hidden = 0;
  std::vector<Ref<const PackedWeight>> r;  // by direction; empty when r is no constant
  dnnl::memory::desc layout;
  const BlockedState* blocked = nullptr;  // null: slices of it are no weights of their own

  // `constant`: r is one, and may lie as the processor's kernels want it.
  static Result<StatePart> make(const Engine& engine, int64_t first, int64_t gates, int64_t hidden,
                                bool constant);
  // The fewest hidden elements whose columns are whole blocks and whole cache lines, in the largest blocks of
  // which `parts` fit into the hidden elements, or else in the smallest: in which kernels take the weight as
  // well. 0: it does not lie in blocks.
  Result<int64_t> choose_blocks(const Engine& engine, int64_t parts);
  // state [rows, hidden] times the columns of so many hidden elements that begin a slice, or of all.
  Result<Ref<const Primitive>> product(const Engine& engine, int64_t rows, int64_t count) const;
  int64_t bytes_to(int64_t element) const;  // from where a direction begins to a slice that begins there
  // `direction`: where its gates begin in the constant, in floats.
  Status pack(WeightStore& weights, const std::byte* constant, int64_t direction, int64_t slice);
};

}  // namespace heddle::host
