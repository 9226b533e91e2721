#include <algorithm>
#include <array>
#include <iterator>

#include "drivers/host/kernels/elementwise/chunks.h"
#include "drivers/host/kernels/elementwise/half.h"
#include "drivers/host/kernels/elementwise/vectorised.h"
#include "drivers/host/layout/storage.h"
#include "drivers/host/machine/aligned_bytes.h"
#include "drivers/host/onednn/channels.h"
#include "drivers/host/onednn/conv.h"
#include "drivers/host/onednn/division.h"
#include "drivers/host/onednn/float_steps.h"
#include "drivers/host/onednn/pieces.h"
#include "drivers/host/onednn/window_pieces.h"
#include "ir/window.h"

namespace heddle::host {
namespace {

using PoolDesc = dnnl::pooling_forward::primitive_desc;

struct Windows {
  Dims kernel, strides, dilations, pads_begin, pads_end;
  dnnl::algorithm algorithm;
};

// Channels last, in images and in rows of them.
class PoolStep final : public Step {
 public:
  static Result<std::unique_ptr<Step>> make(const Lowering& lowering, const Windows& windows) {
    auto step = std::make_unique<PoolStep>();
    HEDDLE_TRY(step->prepare(lowering, windows));
    return std::unique_ptr<Step>(std::move(step));
  }

  Status run(const RunContext& context) const override {
    HEDDLE_TRY(x_.run(context, base_));
    const auto piece = [&](size_t i) {
      const WindowPiece& p = pieces_[i];
      const std::array<const void*, 3> addresses = {
          x_.address(context, base_) + p.x_offset * x_.element_bytes(),
          y_.address(context, base_) + p.y_offset * y_.element_bytes(),
          context.arena + base_ + primitive_scratch_ + i * scratch_stride_};
      return primitives_[p.kind]->run(addresses);
    };
    HEDDLE_TRY(for_each_piece(context, pieces_.size(), "a pool", piece));
    return y_.run(context, base_);
  }

  uint64_t scratch_bytes() const override { return scratch_; }
  void set_scratch(uint64_t offset) override { base_ = offset; }
  uint64_t resident_bytes() const override { return 1024 + primitives_.size() * Primitive::kResidentBytes; }
  std::string path() const override { return path_of(primitives_, pieces_.size()); }
  Sharing sharing() const override { return sharing_; }

 private:
  struct Division {
    WindowCut cut;
    std::vector<WindowPiece> pieces;
    std::vector<PoolDesc> kinds;
    bool fast = true;
  };

  Status prepare(const Lowering& lowering, const Windows& windows) {
    const Engine& engine = lowering.weights.engine();
    const Operand &x = lowering.inputs[0], &y = lowering.outputs[0];
    HEDDLE_TRY_ASSIGN(x_, Turned::make(engine, x, Turned::Way::kInput, scratch_, lowering.width));
    HEDDLE_TRY_ASSIGN(y_, Turned::make(engine, y, Turned::Way::kOutput, scratch_, lowering.width));
    HEDDLE_TRY_ASSIGN(const Division division, divide(engine, windows, x, y, lowering.width));
    pieces_ = division.pieces;
    for (const PoolDesc& desc : division.kinds) {
      HEDDLE_TRY_ASSIGN(
          auto primitive,
          (Primitive::make<PoolDesc, dnnl::pooling_forward>(
              engine, desc, {{DNNL_ARG_SRC, desc.src_desc()}, {DNNL_ARG_DST, desc.dst_desc()}})));
      scratch_stride_ = std::max(scratch_stride_, aligned(primitive->scratch_bytes()));
      primitives_.push_back(std::move(primitive));
    }
    primitive_scratch_ = scratch_;
    scratch_ += scratch_stride_ * pieces_.size();
    return {};
  }

  Result<Division> divide(const Engine& engine, const Windows& windows, const Operand& x, const Operand& y,
                          int width) {
    const WindowPiece whole{
        0, 0, 0, to_dims(x.extents), to_dims(y.extents), windows.pads_begin, windows.pads_end};
    HEDDLE_TRY_ASSIGN(Division division, describe(engine, windows, {whole}));
    if (width == 1) return division;
    sharing_ = Sharing::whole();
    const WindowWork work{whole.y[0],
                          whole.y[2],
                          whole.y[1],
                          x.elements() + y.elements(),
                          x.elements() * x_.element_bytes(),
                          y.elements() * y_.element_bytes(),
                          0};
    if (x.elements() < kWorthSplitting) return division;
    for (const WindowCut& cut : cuts_of(work, 0, width, 1)) {
      std::vector<WindowPiece> pieces;
      for (const WindowPiece& images : cut_images(whole, cut.images)) {
        const int64_t reach = (windows.kernel[0] - 1) * (windows.dilations[0] + 1) + 1;
        std::vector<WindowPiece> rows = cut_window_rows(images, cut.rows, windows.strides[0], reach);
        if (rows.empty()) return division;
        std::ranges::move(rows, std::back_inserter(pieces));
      }
      HEDDLE_TRY_ASSIGN(Division finer, describe(engine, windows, std::move(pieces)));
      if (cut.pieces() == 1 || (division.fast && !finer.fast)) return division;
      sharing_ = Sharing::divided(cut.pieces(), balance_of(work, cut, 0, width), words_of(cut), width);
      return finer;
    }
    return division;
  }

  Result<Division> describe(const Engine& engine, const Windows& windows,
                            std::vector<WindowPiece> pieces) const {
    Division division;
    for (const WindowPiece* kind : find_kinds(pieces)) {
      HEDDLE_TRY_ASSIGN(PoolDesc desc, caught("preparing a pool", [&] {
                          return PoolDesc(engine.cpu, dnnl::prop_kind::forward_inference, windows.algorithm,
                                          channels_last_desc(kind->x, float_type(x_.narrow())),
                                          channels_last_desc(kind->y, float_type(y_.narrow())),
                                          windows.strides, windows.kernel, windows.dilations, kind->begin,
                                          kind->end, engine.attributes());
                        }));
      division.fast = division.fast && !is_reference(desc.impl_info_str());
      division.kinds.push_back(std::move(desc));
    }
    division.pieces = std::move(pieces);
    return division;
  }

  Turned x_, y_;
  std::vector<WindowPiece> pieces_;
  std::vector<Ref<const Primitive>> primitives_;  // by kind of piece
  Sharing sharing_;
  uint64_t primitive_scratch_ = 0, scratch_stride_ = 0;
  uint64_t scratch_ = 0;
  uint64_t base_ = 0;
};

constexpr int64_t kSummed = 16;  // channels: a cache line

template <class Widen, class T>
HEDDLE_INLINE void add_positions(const T* x, int64_t positions, int64_t all, int64_t channels, float* sums,
                                 Widen widen) {
  if (channels == kSummed) {  // in registers
    float kept[kSummed] = {};
    for (int64_t p = 0; p < positions; ++p) {
      for (int64_t c = 0; c < kSummed; ++c) kept[c] += widen(x[p * all + c]);
    }
    std::copy_n(kept, kSummed, sums);
    return;
  }
  std::fill_n(sums, channels, 0.0f);
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t c = 0; c < channels; ++c) sums[c] += widen(x[p * all + c]);
  }
}
HEDDLE_VECTORISED void add_f32(const float* x, int64_t positions, int64_t all, int64_t channels,
                               float* sums) {
  add_positions(x, positions, all, channels, sums, [](float v) { return v; });
}
HEDDLE_VECTORISED void add_bf16(const uint16_t* x, int64_t positions, int64_t all, int64_t channels,
                                float* sums) {
  add_positions(x, positions, all, channels, sums, from_bf16);
}

// The mean of every plane, channels last: channels of all images are what the team shares. Each is summed in
// the order of its positions, so that its bits do not depend on the pieces.
class GlobalAverageStep final : public Step {
 public:
  static Result<std::unique_ptr<Step>> make(const Lowering& lowering) {
    auto step = std::make_unique<GlobalAverageStep>();
    const Engine& engine = lowering.weights.engine();
    const Operand &x = lowering.inputs[0], &y = lowering.outputs[0];
    step->images_ = x.extents[0];
    step->channels_ = x.extents[1];
    step->positions_ = x.elements() / std::max<int64_t>(1, y.elements());
    step->width_ = lowering.width;
    HEDDLE_TRY_ASSIGN(step->x_, Turned::make(engine, x, Turned::Way::kInput, step->scratch_, lowering.width));
    HEDDLE_TRY_ASSIGN(step->y_,
                      Turned::make(engine, y, Turned::Way::kOutput, step->scratch_, lowering.width));
    return std::unique_ptr<Step>(std::move(step));
  }

  Status run(const RunContext& context) const override {
    HEDDLE_TRY(x_.run(context, base_));
    split(context.caller, images_ * blocks(), 1, work(), width_, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) mean(context, i / blocks(), i % blocks() * kSummed);
    });
    return y_.run(context, base_);
  }

  uint64_t scratch_bytes() const override { return scratch_; }
  void set_scratch(uint64_t offset) override { base_ = offset; }
  uint64_t resident_bytes() const override { return 512 + x_.resident_bytes() + y_.resident_bytes(); }
  Sharing sharing() const override {
    return sharing_of_split(images_ * blocks(), 1, work(), width_, "channels");
  }

 private:
  int64_t blocks() const { return (channels_ + kSummed - 1) / kSummed; }
  int64_t work() const { return images_ * channels_ * positions_; }

  void mean(const RunContext& context, int64_t image, int64_t channel) const {
    const int64_t channels = std::min(kSummed, channels_ - channel);
    const std::byte* x =
        x_.address(context, base_) + (image * positions_ * channels_ + channel) * x_.element_bytes();
    std::array<float, kSummed> sums{};
    if (x_.narrow()) {
      add_bf16(reinterpret_cast<const uint16_t*>(x), positions_, channels_, channels, sums.data());
    } else {
      add_f32(reinterpret_cast<const float*>(x), positions_, channels_, channels, sums.data());
    }
    const int64_t at = image * channels_ + channel;
    const auto count = static_cast<float>(positions_);
    for (int64_t c = 0; c < channels; ++c) {
      const float value = sums[static_cast<size_t>(c)] / count;
      if (y_.narrow()) {
        reinterpret_cast<uint16_t*>(y_.address(context, base_))[at + c] = to_bf16(value);
      } else {
        reinterpret_cast<float*>(y_.address(context, base_))[at + c] = value;
      }
    }
  }

  Turned x_, y_;
  int64_t images_ = 0, channels_ = 0, positions_ = 1;
  int width_ = 1;
  uint64_t scratch_ = 0;
  uint64_t base_ = 0;
};

}  // namespace

Result<std::unique_ptr<Step>> lower_average_pool(Lowering& lowering) {
  const ir::Extents& x = lowering.inputs[0].extents;
  const ir::Extents& y = lowering.outputs[0].extents;
  const ir::Node& node = lowering.node;
  if (x.rank() > 5 || counts_beyond_padding(node)) return reference_step(lowering);
  if (node.is("GlobalAveragePool")) return GlobalAverageStep::make(lowering);
  HEDDLE_TRY_ASSIGN(const ir::Window window, ir::Window::of(node, x.rank() - 2, {}));
  const bool count_padding = node.attributes.i64("count_include_pad") != 0;
  Windows w{window.kernel,
            window.strides,
            window.dilations,
            {},
            {},
            count_padding ? dnnl::algorithm::pooling_avg_include_padding
                          : dnnl::algorithm::pooling_avg_exclude_padding};
  for (size_t i = 0; i < window.axes(); ++i) {
    --w.dilations[i];
    const int64_t begin = window.pads(i, x[2 + i]).first;
    w.pads_begin.push_back(begin);
    w.pads_end.push_back((y[2 + i] - 1) * window.strides[i] + window.reach(i) - x[2 + i] - begin);
  }
  return PoolStep::make(lowering, w);
}

}  // namespace heddle::host
