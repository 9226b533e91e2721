#include "drivers/host/onednn/linear_weight.h"

#include "drivers/host/onednn/descriptors.h"

namespace heddle::host {
namespace {

using WeightTag = dnnl::memory::format_tag;

// Weights [K, N]. With a layout, columns lie in outermost blocks, so that a panel of whole blocks is a weight
// of its own.
struct BlockedLayout {
  WeightTag tag;
  int64_t block;  // columns that lie together
};
constexpr BlockedLayout kF32Layouts[] = {{WeightTag::BA16a64b, 64},
                                         {WeightTag::BA16a48b, 48},
                                         {WeightTag::BA16a32b, 32},
                                         {WeightTag::BA16a16b, 16}};
constexpr BlockedLayout kBf16Layouts[] = {{WeightTag::BA16a64b2a, 64},
                                          {WeightTag::BA16a48b2a, 48},
                                          {WeightTag::BA16a32b2a, 32},
                                          {WeightTag::BA16a16b2a, 16}};

}  // namespace

// Asked for a row count in the middle: one layout serves all (tests compare the values).
dnnl::memory::desc wanted_layout(const Engine& engine, int64_t k, int64_t n) {
  constexpr int64_t kRows = 64;
  const auto type = float_type(engine.bf16);
  const dnnl::matmul::primitive_desc desc(engine.cpu, {{kRows, k}, type, WeightTag::ab},
                                          {{k, n}, type, WeightTag::any}, f32_desc({kRows, n}),
                                          engine.attributes());
  return desc.weights_desc();
}

const std::byte* LinearWeight::panel(int64_t column) const {
  const int64_t rows = bf16 ? 32 : 16;  // that lie together
  const int64_t element = bf16 ? sizeof(uint16_t) : sizeof(float);
  return packed.here() + (tag ? column * ((k + rows - 1) / rows * rows) : column * column_stride) * element;
}

dnnl::memory::desc LinearWeight::desc(int64_t columns) const {
  if (tag) return {{k, columns}, float_type(bf16), *tag};
  return n == columns ? whole : f32_desc({k, columns}, whole.get_strides());
}

dnnl::memory::desc LinearWeight::desc(int64_t columns, int64_t rows) const {
  return rows == k ? desc(columns) : f32_desc({rows, columns}, whole.get_strides());
}

Result<Ref<const LinearWeight>> pack_linear_weight(WeightStore& store, const void* source, int64_t k,
                                                   int64_t n, bool transposed) {
  const Engine& engine = store.engine();
  auto weight = std::make_shared<LinearWeight>();
  HEDDLE_TRY_ASSIGN(weight->whole,
                    caught("choosing a weight's layout", [&] { return wanted_layout(engine, k, n); }));
  weight->k = k;
  weight->n = n;
  weight->bf16 = engine.bf16;
  for (const BlockedLayout& blocked : engine.bf16 ? kBf16Layouts : kF32Layouts) {
    HEDDLE_TRY_ASSIGN(const bool fits, caught("comparing layouts", [&] {
                        return weight->whole ==
                               dnnl::memory::desc({k, n}, float_type(engine.bf16), blocked.tag);
                      }));
    if (!fits) continue;
    weight->tag = blocked.tag;
    weight->block = blocked.block;
  }
  HEDDLE_TRY_ASSIGN(weight->packed, store.room(source, weight->whole.get_size()));
  HEDDLE_TRY(status_of(caught("packing a weight", [&] {
    const dnnl::memory::desc plain = transposed ? f32_desc({k, n}, {1, k}) : f32_desc({k, n});
    dnnl::memory from(plain, engine.cpu, const_cast<void*>(source));
    dnnl::memory to(weight->whole, engine.cpu, weight->packed.get());
    dnnl::stream stream(engine.cpu);
    dnnl::reorder(from, to).execute(stream, from, to);
    return true;
  })));
  return Ref<const LinearWeight>(std::move(weight));
}

Result<Ref<const LinearWeight>> plain_linear_weight(int64_t k, int64_t n, bool transposed) {
  auto weight = std::make_shared<LinearWeight>();
  weight->k = k;
  weight->n = n;
  weight->column_stride = transposed ? k : 1;
  weight->block = 16;
  HEDDLE_TRY_ASSIGN(weight->whole, caught("describing a weight", [&] {
                      return transposed ? f32_desc({k, n}, {1, k}) : f32_desc({k, n});
                    }));
  return Ref<const LinearWeight>(std::move(weight));
}

}  // namespace heddle::host
