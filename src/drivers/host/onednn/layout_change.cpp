#include "drivers/host/onednn/layout_change.h"

#include <algorithm>
#include <array>

#include "base/trace.h"
#include "drivers/host/kernels/elementwise/narrow.h"
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

std::optional<ir::DType> widened_from(const dnnl::memory::desc& outside, const dnnl::memory::desc& inside) {
  if (inside.get_data_type() != dnnl::memory::data_type::f32) return std::nullopt;
  if (outside.get_data_type() == dnnl::memory::data_type::f16) return ir::DType::kF16;
  if (outside.get_data_type() == dnnl::memory::data_type::bf16) return ir::DType::kBF16;
  return std::nullopt;
}

int64_t element_bytes(const dnnl::memory::desc& desc) {
  return static_cast<int64_t>(dnnl::memory::data_type_size(desc.get_data_type()));
}

// `size` elements along the axis.
dnnl::memory::desc part_of(const dnnl::memory::desc& whole, size_t axis, int64_t size) {
  Dims dims = whole.get_dims();
  if (dims[axis] == size) return whole;
  dims[axis] = size;
  return whole.submemory_desc(dims, Dims(dims.size(), 0));
}

}  // namespace

LayoutChange::Cut LayoutChange::choose_cut(const dnnl::memory::desc& outside,
                                           const dnnl::memory::desc& inside, int width) {
  const Dims dims = outside.get_dims();
  constexpr int64_t kWorthCutting = 32768;  // less is moved before a helper wakes up
  constexpr int64_t kInCache = 65536;       // of f32
  const int64_t elements = elements_of(dims);
  const bool widens = widened_from(outside, inside).has_value();
  const int64_t wanted = widens ? std::max<int64_t>(width, elements / kInCache) : width;
  if (wanted == 1 || elements < kWorthCutting || !outside.get_inner_blks().empty()) return {0, 1};
  const std::vector<int64_t> blocks = blocks_of(inside);
  const auto is_enough = [&](int64_t pieces) {
    return pieces >= std::max(width, 2) && (!widens || elements <= 4 * kInCache * pieces);
  };
  Cut best{0, 1};
  for (const size_t axis : {size_t{0}, size_t{2}, size_t{1}}) {
    if (axis >= dims.size() || blocks[axis] == 0 || is_enough(best.pieces)) continue;
    const int64_t pieces = std::min(dims[axis] / blocks[axis], wanted);
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
  const Dims dims = outside.get_dims();
  if (const std::optional<ir::DType> from = widened_from(outside, inside)) {
    const int64_t runs = elements_of({dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(cut.axis)});
    change.widening_ = {*from, runs, elements_of(dims) / runs * element_bytes(outside), 0};
  }
  const int64_t grain = cut.pieces == 1 ? dims[cut.axis] : cut.grain;
  const int64_t extent = cut.pieces == 1 ? 1 : dims[cut.axis] / grain;
  const int64_t beside = elements_of({dims.begin() + static_cast<std::ptrdiff_t>(cut.axis) + 1, dims.end()});
  uint64_t reorder_bytes = 0;
  std::vector<int64_t> extents;  // of the reorders, along the axis
  for (int64_t i = 0; i < cut.pieces; ++i) {
    const int64_t first = extent * i / cut.pieces, size = extent * (i + 1) / cut.pieces - first;
    const auto offset = [&](const dnnl::memory::desc& desc, int64_t apart) {
      return first == 0 ? 0 : first * apart * desc.get_strides()[cut.axis] * element_bytes(desc);
    };
    const auto known = std::ranges::find(extents, size);
    change.pieces_.push_back({static_cast<size_t>(known - extents.begin()), offset(outside, grain),
                              offset(inside, 1), size * grain * beside});
    if (known != extents.end()) continue;
    extents.push_back(size);
    HEDDLE_TRY_ASSIGN(const Desc desc, caught("preparing a change of layout", [&] {
                        const dnnl::memory::desc own = part_of(outside, cut.axis, size * grain);
                        const auto apart = change.widening_ ? f32_desc(own.get_dims()) : own;
                        const auto here = part_of(inside, cut.axis, size * grain);
                        return way == Way::kInput
                                   ? Desc(engine.cpu, apart, engine.cpu, here, engine.attributes())
                                   : Desc(engine.cpu, here, engine.cpu, apart, engine.attributes());
                      }));
    HEDDLE_TRY_ASSIGN(auto reorder,
                      (Primitive::make<Desc, dnnl::reorder>(
                          engine, desc, {{DNNL_ARG_FROM, desc.src_desc()}, {DNNL_ARG_TO, desc.dst_desc()}})));
    reorder_bytes = std::max(reorder_bytes, aligned(reorder->scratch_bytes()));
    if (change.widening_) {
      change.widening_->piece_bytes =
          std::max(change.widening_->piece_bytes, aligned(desc.src_desc().get_size()));
    }
    change.reorders_.push_back(std::move(reorder));
  }
  change.tasks_ = std::min(change.pieces_.size(), static_cast<size_t>(width));
  change.task_bytes_ = reorder_bytes + (change.widening_ ? change.widening_->piece_bytes : 0);
  change.offset_ = reserve(scratch, inside.get_size());
  change.tasks_scratch_ = reserve(scratch, change.task_bytes_ * change.tasks_);
  return change;
}

Status LayoutChange::run(const RunContext& context, uint64_t base, const std::byte* outside) const {
  if (pieces_.empty()) return {};
  const trace::Span span("layout", "reorder");
  if (tasks_ == 1) return run_pieces(context, base, outside, 0);
  return for_each_piece(context, tasks_, "a change of layout",
                        [&](size_t task) { return run_pieces(context, base, outside, task); });
}

Status LayoutChange::run_pieces(const RunContext& context, uint64_t base, const std::byte* outside,
                                size_t task) const {
  std::byte* const own = context.arena + base + tasks_scratch_ + task * task_bytes_;
  const size_t last = pieces_.size() * (task + 1) / tasks_;
  for (size_t i = pieces_.size() * task / tasks_; i < last; ++i) {
    const Piece& piece = pieces_[i];
    const Primitive& reorder = *reorders_[piece.reorder];
    const std::byte* const here = address(context, base) + piece.inside;
    const std::byte* const there = widening_ ? widen(piece, outside, own) : outside + piece.outside;
    const std::byte* const rest = widening_ ? own + widening_->piece_bytes : own;
    const bool enters = way_ == Way::kInput;
    HEDDLE_TRY(reorder.run(std::array<const void*, 3>{enters ? there : here, enters ? here : there, rest}));
  }
  return {};
}

const std::byte* LayoutChange::widen(const Piece& piece, const std::byte* outside, std::byte* scratch) const {
  for (int64_t i = 0; i < widening_->runs; ++i) {
    const std::byte* const run = outside + piece.outside + i * widening_->bytes_apart;
    half_to_f32(widening_->from, reinterpret_cast<const uint16_t*>(run),
                reinterpret_cast<float*>(scratch) + i * piece.run, piece.run);
  }
  return scratch;
}

}  // namespace heddle::host
