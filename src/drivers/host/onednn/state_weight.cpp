#include "drivers/host/onednn/state_weight.h"

#include <algorithm>
#include <numeric>

#include "drivers/host/onednn/division.h"

namespace heddle::host {

// Layouts of a [hidden, columns] weight in which panels of whole blocks of columns are weights.
struct BlockedState {
  dnnl::memory::format_tag tag;
  int64_t block;
};

namespace {

using MatmulDesc = dnnl::matmul::primitive_desc;

constexpr BlockedState kStateLayouts[] = {{dnnl::memory::format_tag::BA16a64b, 64},
                                          {dnnl::memory::format_tag::BA16a48b, 48},
                                          {dnnl::memory::format_tag::BA16a32b, 32},
                                          {dnnl::memory::format_tag::BA16a16b, 16}};
constexpr int64_t kTogether = 16;  // rows of the weight that lie together

}  // namespace

std::vector<Slice> slices_of(const Slice& all, int64_t slice) {
  std::vector<Slice> slices;
  for (int64_t first = all.first; first < all.first + all.count; first += slice)
    slices.push_back({first, std::min(slice, all.first + all.count - first)});
  return slices;
}

Result<StatePart> StatePart::make(const Engine& engine, int64_t first, int64_t gates, int64_t hidden,
                                  bool constant) {
  StatePart part{first, gates, hidden, {}, {}};
  const int64_t columns = gates * hidden;
  HEDDLE_TRY(status_of(caught("choosing a weight's layout", [&] {
    part.layout = f32_desc({hidden, columns}, {1, hidden});
    if (!constant) return true;
    // Asked for a row count in the middle: one layout serves all.
    constexpr int64_t kRows = 16;
    part.layout = MatmulDesc(engine.cpu, f32_desc({kRows, hidden}), f32_any({hidden, columns}),
                             f32_desc({kRows, columns}), engine.attributes())
                      .weights_desc();
    for (const BlockedState& each : kStateLayouts) {
      if (part.layout == dnnl::memory::desc({hidden, columns}, dnnl::memory::data_type::f32, each.tag))
        part.blocked = &each;
    }
    return true;
  })));
  return part;
}

Result<int64_t> StatePart::choose_blocks(const Engine& engine, int64_t parts) {
  constexpr int64_t kCacheLine = 16;
  int64_t unit = 0;
  const auto unit_of = [&](const BlockedState& each) {
    return std::lcm(kCacheLine, each.block / std::gcd(each.block, gates));
  };
  for (const BlockedState& each : kStateLayouts) {
    const bool larger = blocked == nullptr || each.block > blocked->block;
    if (larger || (unit > 0 && hidden / unit >= parts)) continue;
    const dnnl::memory::desc wanted({hidden, gates * hidden}, dnnl::memory::data_type::f32, each.tag);
    const auto desc = caught("asking for a kernel", [&] {
      return MatmulDesc(engine.cpu, f32_desc({1, hidden}), wanted, f32_desc({1, gates * hidden}),
                        engine.attributes());
    });
    if (desc.status().code() == Code::unsupported) continue;
    HEDDLE_TRY(desc.status());
    if (is_reference(desc->impl_info_str())) continue;
    unit = unit_of(each);
    blocked = &each;
    layout = wanted;
  }
  return unit;
}

Result<Ref<const Primitive>> StatePart::product(const Engine& engine, int64_t rows, int64_t count) const {
  HEDDLE_TRY_ASSIGN(const MatmulDesc desc, caught("preparing a recurrent product", [&] {
                      const int64_t columns = gates * count;
                      const dnnl::memory::desc own =
                          count == hidden ? layout
                                          : dnnl::memory::desc({hidden, columns},
                                                               dnnl::memory::data_type::f32, blocked->tag);
                      return MatmulDesc(engine.cpu, f32_desc({rows, hidden}), own, f32_desc({rows, columns}),
                                        engine.attributes());
                    }));
  return Primitive::make<MatmulDesc, dnnl::matmul>(engine, desc,
                                                   {{DNNL_ARG_SRC, desc.src_desc()},
                                                    {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                                                    {DNNL_ARG_DST, desc.dst_desc()}});
}

int64_t StatePart::bytes_to(int64_t element) const {
  const int64_t rows = (hidden + kTogether - 1) / kTogether * kTogether;
  return gates * element * rows * int64_t{sizeof(float)};
}

Status StatePart::pack(WeightStore& weights, const std::byte* constant, int64_t direction, int64_t slice) {
  const int64_t offset = direction + first * hidden * hidden;
  HEDDLE_TRY_ASSIGN(const dnnl::memory::desc plain, caught("describing a weight", [&] {
                      return f32_desc({hidden, gates * hidden}, {1, hidden});
                    }));
  if (slice == hidden) {
    const int64_t bytes = offset * int64_t{sizeof(float)};
    HEDDLE_TRY_ASSIGN(auto packed, pack_weight(weights, "state", constant, bytes, plain, layout));
    r.push_back(std::move(packed));
    return {};
  }
  const auto make = [&]() -> Result<Ref<const PackedWeight>> {
    auto weight = std::make_shared<PackedWeight>();
    weight->size = layout.get_size();
    HEDDLE_TRY_ASSIGN(weight->data, weights.room(constant, weight->size));
    HEDDLE_TRY(status_of(caught("packing a weight", [&] {
      std::vector<float> rows;
      rows.reserve(static_cast<size_t>(gates * hidden * hidden));
      const float* from = reinterpret_cast<const float*>(constant) + offset;
      for (const Slice& each : slices_of({0, hidden}, slice)) {
        for (int64_t gate = 0; gate < gates; ++gate) {
          const float* begin = from + (gate * hidden + each.first) * hidden;
          rows.insert(rows.end(), begin, begin + each.count * hidden);
        }
      }
      const Engine& engine = weights.engine();
      dnnl::memory in_order(plain, engine.cpu, rows.data());
      dnnl::memory to(layout, engine.cpu, weight->data.get());
      dnnl::stream stream(engine.cpu);
      dnnl::reorder(in_order, to).execute(stream, in_order, to);
      return true;
    })));
    return Ref<const PackedWeight>(std::move(weight));
  };
  HEDDLE_TRY_ASSIGN(auto packed,
                    weights.get<PackedWeight>(
                        constant, text("state in slices of ", slice, " o", offset, "g", gates), make));
  r.push_back(std::move(packed));
  return {};
}

}  // namespace heddle::host
