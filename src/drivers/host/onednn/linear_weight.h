// linear_weight.h: the weight [K, N] of a product, packed once for all row counts, and its panels.
//
//   What       pack_linear_weight() lays a constant out as the processor's kernels want it. A panel of whole
//              blocks of columns is a weight of its own. plain_linear_weight() describes a weight that lies
//              in the arena of the run.
//   Errors     desc() may throw dnnl::error: use it inside caught().
//   Threads    Any; packing runs with no lock held.
#pragma once

#include <dnnl.hpp>
#include <optional>

#include "drivers/host/onednn/engine.h"
#include "drivers/host/onednn/weight_store.h"

namespace heddle::host {

struct LinearWeight final : Packed {
  uint64_t bytes() const override { return (packed != nullptr ? whole.get_size() : 0) + 256; }
  // Where the panel that begins with this column lies: in a packed weight, and from a plain one's begin.
  const std::byte* panel(int64_t column) const;
  int64_t plain_offset(int64_t column) const { return column * column_stride * int64_t{sizeof(float)}; }
  dnnl::memory::desc desc(int64_t columns) const;  // of a panel
  // Of some rows of K, and where they begin. Only a weight without blocks has any.
  dnnl::memory::desc desc(int64_t columns, int64_t rows) const;
  int64_t bytes_to_row(int64_t row) const { return row * row_stride() * int64_t{sizeof(float)}; }
  int64_t row_stride() const { return whole.get_strides()[0]; }
  bool cuts() const { return packed == nullptr || tag.has_value(); }

  int64_t k = 0, n = 0;
  dnnl::memory::desc whole;
  bool bf16 = false;
  std::optional<dnnl::memory::format_tag> tag;
  int64_t block = 1;          // columns that lie together
  int64_t column_stride = 1;  // of a plain weight
  WeightRoom packed;          // null: it lies in the arena of the run
};

// Which layout of a weight [K, N] the processor's kernels want. May throw dnnl::error.
dnnl::memory::desc wanted_layout(const Engine& engine, int64_t k, int64_t n);

Result<Ref<const LinearWeight>> pack_linear_weight(WeightStore& store, const void* source, int64_t k,
                                                   int64_t n, bool transposed);
Result<Ref<const LinearWeight>> plain_linear_weight(int64_t k, int64_t n, bool transposed);

}  // namespace heddle::host
