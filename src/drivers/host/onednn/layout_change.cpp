#include "drivers/host/onednn/layout_change.h"

#include <algorithm>
#include <array>

#include "base/trace.h"
#include "drivers/host/machine/aligned_bytes.h"
#include "drivers/host/onednn/pieces.h"

namespace heddle::host {
namespace {

// Elements along each axis that lie in one block; 0: a cut between blocks would leave padding behind.
std::vector<int64_t> blocks_of(const dnnl::memory::desc& desc) {
  const Dims dims = desc.get_dims(), padded = desc.get_padded_dims();
  const Dims sizes = desc.get_inner_blks(), axes = desc.get_inner_idxs();
  std::vector<int64_t> blocks(dims.size(), 1);
  for (size_t i = 0; i < sizes.size(); ++i) blocks[static_cast<size_t>(axes[i])] *= sizes[i];
  for (size_t i = 0; i < dims.size(); ++i) {
    if (padded[i] != dims[i]) blocks[i] = 0;
  }
  return blocks;
}

uint64_t reserve(uint64_t& scratch, uint64_t bytes) {
  const uint64_t at = scratch;
  scratch += aligned(bytes);
  return at;
}

}  // namespace

LayoutChange::Cut LayoutChange::choose_cut(const dnnl::memory::desc& outside,
                                           const dnnl::memory::desc& inside, int width) {
  const Dims dims = outside.get_dims();
  constexpr int64_t kWorthCutting = 32768;  // less is moved before a helper wakes up
  if (width == 1 || elements_of(dims) < kWorthCutting || !outside.get_inner_blks().empty()) return {0, 1};
  const std::vector<int64_t> blocks = blocks_of(inside);
  Cut best{0, 1};
  for (const size_t axis : {size_t{0}, size_t{2}, size_t{1}}) {
    if (axis >= dims.size() || blocks[axis] == 0) continue;
    const int64_t pieces = std::min<int64_t>(dims[axis] / blocks[axis], width);
    if (pieces > best.pieces) best = {axis, pieces, blocks[axis]};
  }
  return best;
}

Result<LayoutChange> LayoutChange::make(const Engine& engine, const dnnl::memory::desc& outside,
                                        const dnnl::memory::desc& inside, Way way, uint64_t& scratch,
                                        int width) {
  using Desc = dnnl::reorder::primitive_desc;
  LayoutChange change;
  change.way_ = way;
  HEDDLE_TRY_ASSIGN(const Cut cut, caught("looking at a change of layout",
                                          [&] { return choose_cut(outside, inside, width); }));
  const int64_t extent = cut.pieces == 1 ? 1 : outside.get_dims()[cut.axis] / cut.grain;
  std::vector<int64_t> extents;  // of the reorders, along the axis
  for (int64_t i = 0; i < cut.pieces; ++i) {
    const int64_t first = extent * i / cut.pieces, size = extent * (i + 1) / cut.pieces - first;
    const auto offset = [&](const dnnl::memory::desc& desc, int64_t apart) {
      const auto element = static_cast<int64_t>(dnnl::memory::data_type_size(desc.get_data_type()));
      return cut.pieces == 1 ? 0 : first * apart * desc.get_strides()[cut.axis] * element;
    };
    const auto known = std::ranges::find(extents, size);
    change.pieces_.push_back(
        {static_cast<size_t>(known - extents.begin()), offset(outside, cut.grain), offset(inside, 1)});
    if (known != extents.end()) continue;
    extents.push_back(size);
    HEDDLE_TRY_ASSIGN(const Desc desc, caught("preparing a change of layout", [&] {
                        const auto part = [&](const dnnl::memory::desc& whole) {
                          Dims dims = whole.get_dims();
                          if (cut.pieces == 1) return whole;
                          dims[cut.axis] = size * cut.grain;
                          return whole.submemory_desc(dims, Dims(dims.size(), 0));
                        };
                        const auto from = part(way == Way::kInput ? outside : inside);
                        const auto to = part(way == Way::kInput ? inside : outside);
                        return Desc(engine.cpu, from, engine.cpu, to, engine.attributes());
                      }));
    HEDDLE_TRY_ASSIGN(auto reorder,
                      (Primitive::make<Desc, dnnl::reorder>(
                          engine, desc, {{DNNL_ARG_FROM, desc.src_desc()}, {DNNL_ARG_TO, desc.dst_desc()}})));
    change.piece_scratch_ = std::max(change.piece_scratch_, aligned(reorder->scratch_bytes()));
    change.reorders_.push_back(std::move(reorder));
  }
  change.offset_ = reserve(scratch, inside.get_size());
  change.reorder_scratch_ = reserve(scratch, change.piece_scratch_ * change.pieces_.size());
  return change;
}

Status LayoutChange::run(const RunContext& context, uint64_t base, const std::byte* outside) const {
  if (pieces_.empty()) return {};
  const trace::Span span("layout", "reorder");
  if (pieces_.size() == 1) return run_piece(context, base, outside, 0);
  return for_each_piece(context, pieces_.size(), "a change of layout",
                        [&](size_t i) { return run_piece(context, base, outside, i); });
}

Status LayoutChange::run_piece(const RunContext& context, uint64_t base, const std::byte* outside,
                               size_t index) const {
  const Piece& piece = pieces_[index];
  const std::byte* inside = address(context, base) + piece.inside;
  const std::byte* scratch = context.arena + base + reorder_scratch_ + index * piece_scratch_;
  outside += piece.outside;
  return way_ == Way::kInput
             ? reorders_[piece.reorder]->run(std::array<const void*, 3>{outside, inside, scratch})
             : reorders_[piece.reorder]->run(std::array<const void*, 3>{inside, outside, scratch});
}

}  // namespace heddle::host
