// MatMulInteger and ConvInteger: operands are widened to 16 bits, the left less its zero point; the right
// operand's zero point is taken off the sums, so that weights are widened once however they are used.
#include <algorithm>
#include <array>
#include <memory>

#include "drivers/host/kernels/elementwise/chunks.h"
#include "drivers/host/kernels/integer/integer_product.h"
#include "drivers/host/kernels/reference/reference_step.h"
#include "drivers/host/machine/aligned_bytes.h"
#include "drivers/host/onednn/weight_store.h"
#include "ir/ops/walk.h"
#include "ir/window.h"

namespace heddle::host {

namespace {

struct WideRows final : Packed {
  uint64_t bytes() const override { return size + 256; }
  WeightRoom block;
  uint64_t size = 0;
};

int32_t point_at(const RunContext& context, const Operand& point, int64_t at) {
  if (!point.present()) return 0;
  return point.dtype == ir::DType::kI8 ? context.read<int8_t>(point)[at] : context.read<uint8_t>(point)[at];
}

// Row `row` of an operand: `count` elements, `stride` apart, beginning at `first`.
void widen(const Operand& operand, const std::byte* data, int64_t first, int64_t stride, int64_t count,
           int32_t point, int16_t* to) {
  if (operand.dtype == ir::DType::kI8) {
    widen_row(reinterpret_cast<const int8_t*>(data) + first, stride, count, point, to);
  } else {
    widen_row(reinterpret_cast<const uint8_t*>(data) + first, stride, count, point, to);
  }
}

// An operand whose rows are multiplied with: widened when the program is made, or by each run.
class WideWeight {
 public:
  // Calls widen_all(data, to) with room for `rows` rows of `length` elements.
  template <class WidenAll>
  Status prepare(const Lowering& lowering, const Operand& weight, int64_t rows, int64_t length,
                 std::string layout, WidenAll&& widen_all, uint64_t& scratch) {
    bytes_ = aligned(static_cast<uint64_t>(rows * length) * sizeof(int16_t));
    weight_ = weight;
    if (weight.location != Operand::Location::kConstant) {
      offset_ = scratch;
      scratch += bytes_;
      return {};
    }
    HEDDLE_TRY_ASSIGN(packed_,
                      lowering.weights.get<WideRows>(
                          weight.constant, std::move(layout), [&]() -> Result<Ref<const WideRows>> {
                            auto made = std::make_shared<WideRows>();
                            HEDDLE_TRY_ASSIGN(made->block, lowering.weights.room(weight.constant, bytes_));
                            made->size = bytes_;
                            widen_all(weight.constant, reinterpret_cast<int16_t*>(made->block.get()));
                            return Ref<const WideRows>(std::move(made));
                          }));
    return {};
  }
  template <class WidenAll>
  const int16_t* rows(const RunContext& context, uint64_t base, WidenAll&& widen_all) const {
    if (packed_ != nullptr) return reinterpret_cast<const int16_t*>(packed_->block.here());
    auto* own = reinterpret_cast<int16_t*>(context.arena + base + offset_);
    widen_all(context.read(weight_), own);
    return own;
  }

 private:
  Operand weight_;
  uint64_t bytes_ = 0, offset_ = 0;
  Ref<const WideRows> packed_;
};

ir::Extents with_matrix_axes(const ir::Extents& e, bool left) {
  ir::Extents out;
  if (e.rank() == 1 && left) out.push_back(1);
  for (int64_t extent : e) out.push_back(extent);
  if (e.rank() == 1 && !left) out.push_back(1);
  return out;
}

class MatMulIntegerStep final : public Step {
 public:
  static Result<std::unique_ptr<Step>> make(const Lowering& lowering) {
    auto step = std::make_unique<MatMulIntegerStep>();
    HEDDLE_TRY(step->prepare(lowering));
    return std::unique_ptr<Step>(std::move(step));
  }

  Status run(const RunContext& context) const override {
    const int16_t* b =
        b_wide_.rows(context, base_, [&](const std::byte* data, int16_t* to) { widen_columns(data, to); });
    auto* wide = reinterpret_cast<int16_t*>(context.arena + base_ + a_offset_);
    split(context.caller, batches_ * m_, 16, batches_ * m_ * n_ * length_ / 16, width_,
          [&](int64_t begin, int64_t end, int) {
            for (int64_t row = begin; row < end;) {
              const int64_t batch = row / m_, last = std::min(end, (batch + 1) * m_);
              run_rows(context, b, wide + row * length_, batch, row - batch * m_, last - row);
              row = last;
            }
          });
    return {};
  }

  uint64_t scratch_bytes() const override { return scratch_; }
  void set_scratch(uint64_t offset) override { base_ = offset; }
  Sharing sharing() const override {
    return sharing_of_split(batches_ * m_, 16, batches_ * m_ * n_ * length_ / 16, width_, "rows");
  }

 private:
  Status prepare(const Lowering& lowering) {
    const auto input = [&](size_t i) { return i < lowering.inputs.size() ? lowering.inputs[i] : Operand(); };
    a_ = input(0), b_ = input(1), a_point_ = input(2), b_point_ = input(3), y_ = lowering.outputs[0];
    width_ = lowering.width;
    const ir::Extents left = with_matrix_axes(a_.extents, true), right = with_matrix_axes(b_.extents, false);
    m_ = left[left.rank() - 2], k_ = left[left.rank() - 1], n_ = right[right.rank() - 1];
    length_ = padded_row(k_);
    const size_t rank = std::max(left.rank(), right.rank()) - 2;
    const ir::Extents batch(y_.extents.span().first(rank));
    batches_ = batch.elements();
    b_batches_ = ir::Extents(right.span().first(right.rank() - 2)).elements();
    const ir::Strides a_at(ir::Extents(left.span().first(left.rank() - 2)), rank);
    const ir::Strides b_at(ir::Extents(right.span().first(right.rank() - 2)), rank);
    // Zero points along the rows of a, and along the columns of b, of every batch.
    const ir::Strides a_points(a_point_.extents, left.rank()), b_points(b_point_.extents, right.rank());
    a_point_step_ = a_point_.present() ? a_points[left.rank() - 2] : 0;
    b_point_step_ = b_point_.present() ? b_points[right.rank() - 1] : 0;
    ir::walk(batch, [&](const ir::Index& index, int64_t) {
      Batch at{a_at.at(index), b_at.at(index), 0, 0};
      for (size_t axis = 0; axis < rank; ++axis) {
        const size_t a_lead = rank + 2 - left.rank(), b_lead = rank + 2 - right.rank();
        if (axis >= a_lead) at.a_point += index[axis] * a_points[axis - a_lead];
        if (axis >= b_lead) at.b_point += index[axis] * b_points[axis - b_lead];
      }
      at_.push_back(at);
    });
    HEDDLE_TRY(b_wide_.prepare(
        lowering, b_, b_batches_ * n_, length_, text("integer columns ", k_, "x", n_),
        [&](const std::byte* data, int16_t* to) { widen_columns(data, to); }, scratch_));
    a_offset_ = scratch_;
    scratch_ += aligned(static_cast<uint64_t>(batches_ * m_ * length_) * sizeof(int16_t));
    return {};
  }

  void widen_columns(const std::byte* data, int16_t* to) const {
    for (int64_t column = 0; column < b_batches_ * n_; ++column) {
      widen(b_, data, column / n_ * k_ * n_ + column % n_, n_, k_, 0, to + column * length_);
    }
  }

  void run_rows(const RunContext& context, const int16_t* b, int16_t* wide, int64_t batch, int64_t first,
                int64_t rows) const {
    const Batch& at = at_[static_cast<size_t>(batch)];
    for (int64_t i = 0; i < rows; ++i) {
      const int32_t point = point_at(context, a_point_, at.a_point + (first + i) * a_point_step_);
      widen(a_, context.read(a_), (at.a * m_ + first + i) * k_, 1, k_, point, wide + i * length_);
    }
    int32_t* y = context.write<int32_t>(y_) + (batch * m_ + first) * n_;
    product_of_rows({wide, rows}, {b + at.b * n_ * length_, n_}, length_, y, n_);
    if (!b_point_.present()) return;
    for (int64_t i = 0; i < rows; ++i) {
      const auto sum = static_cast<uint32_t>(sum_of_row(wide + i * length_, length_));
      for (int64_t j = 0; j < n_; ++j) {
        const auto point = static_cast<uint32_t>(point_at(context, b_point_, at.b_point + j * b_point_step_));
        y[i * n_ + j] = static_cast<int32_t>(static_cast<uint32_t>(y[i * n_ + j]) - point * sum);
      }
    }
  }

  struct Batch {
    int64_t a, b, a_point, b_point;  // of one product of the stack: matrices, and first zero points
  };

  Operand a_, b_, a_point_, b_point_, y_;
  int64_t m_ = 0, n_ = 0, k_ = 0, length_ = 0;
  int64_t batches_ = 1, b_batches_ = 1;
  int64_t a_point_step_ = 0, b_point_step_ = 0;
  std::vector<Batch> at_;
  WideWeight b_wide_;
  int width_ = 1;
  uint64_t a_offset_ = 0, scratch_ = 0, base_ = 0;
};

// The windows under some positions of the output become rows, which meet the rows of the weight.
class ConvIntegerStep final : public Step {
 public:
  static Result<std::unique_ptr<Step>> make(const Lowering& lowering) {
    auto step = std::make_unique<ConvIntegerStep>();
    HEDDLE_TRY(step->prepare(lowering));
    return std::unique_ptr<Step>(std::move(step));
  }

  Status run(const RunContext& context) const override {
    const int16_t* w =
        w_wide_.rows(context, base_, [&](const std::byte* data, int16_t* to) { widen_weight(data, to); });
    const int64_t chunks = (positions_ + kPositions - 1) / kPositions;
    split(context.caller, y_.extents[0] * groups_ * chunks, 1, y_.elements() * length_ / 16, width_,
          [&](int64_t begin, int64_t end, int piece) {
            auto* own = context.arena + base_ + windows_offset_ + static_cast<uint64_t>(piece) * piece_bytes_;
            for (int64_t unit = begin; unit < end; ++unit) {
              run_unit(context, w, reinterpret_cast<int16_t*>(own), unit / chunks,
                       unit % chunks * kPositions);
            }
          });
    return {};
  }

  uint64_t scratch_bytes() const override { return scratch_; }
  void set_scratch(uint64_t offset) override { base_ = offset; }
  Sharing sharing() const override {
    const int64_t chunks = (positions_ + kPositions - 1) / kPositions;
    return sharing_of_split(y_.extents[0] * groups_ * chunks, 1, y_.elements() * length_ / 16, width_,
                            "positions");
  }

 private:
  static constexpr int64_t kPositions = 64;

  Status prepare(const Lowering& lowering) {
    const auto input = [&](size_t i) { return i < lowering.inputs.size() ? lowering.inputs[i] : Operand(); };
    x_ = input(0), w_ = input(1), x_point_ = input(2), w_point_ = input(3), y_ = lowering.outputs[0];
    width_ = lowering.width;
    const ir::Extents kernel(w_.extents.span().subspan(2));
    HEDDLE_TRY_ASSIGN(window_, ir::Window::of(lowering.node, kernel.rank(), {kernel.begin(), kernel.end()}));
    groups_ = lowering.node.attributes.i64("group", 1);
    group_out_ = y_.extents[1] / groups_;
    channels_ = w_.extents[1];
    plane_ = ir::Extents(x_.extents.span().subspan(2)).elements();
    positions_ = ir::Extents(y_.extents.span().subspan(2)).elements();
    taps_ = kernel.elements();
    length_ = padded_row(channels_ * taps_);
    HEDDLE_TRY(w_wide_.prepare(
        lowering, w_, w_.extents[0], length_, text("integer rows ", length_),
        [&](const std::byte* data, int16_t* to) { widen_weight(data, to); }, scratch_));
    windows_offset_ = scratch_;
    piece_bytes_ = aligned(static_cast<uint64_t>(kPositions * length_) * sizeof(int16_t) +
                           static_cast<uint64_t>(taps_) * sizeof(int64_t));
    scratch_ += piece_bytes_ * static_cast<uint64_t>(width_ * kPiecesPerThread);
    return {};
  }

  void widen_weight(const std::byte* data, int16_t* to) const {
    const int64_t k = channels_ * taps_;
    for (int64_t row = 0; row < w_.extents[0]; ++row) widen(w_, data, row * k, 1, k, 0, to + row * length_);
  }

  // Where the taps of one position lie in a plane of x; -1 in the padding.
  void place_taps(int64_t position, int64_t* places) const {
    const size_t axes = window_.axes();
    std::array<int64_t, ir::kMaxRank> at{};
    for (size_t i = axes; i-- > 0;) {
      at[i] = position % y_.extents[2 + i] * window_.strides[i] - window_.pads(i, x_.extents[2 + i]).first;
      position /= y_.extents[2 + i];
    }
    ir::walk(ir::Extents(window_.kernel), [&](const ir::Index& tap, int64_t flat) {
      int64_t place = 0;
      bool inside = true;
      for (size_t i = 0; i < axes; ++i) {
        const int64_t source = at[i] + tap[i] * window_.dilations[i];
        inside = inside && source >= 0 && source < x_.extents[2 + i];
        place = place * x_.extents[2 + i] + source;
      }
      places[flat] = inside ? place : -1;
    });
  }

  template <class T>
  void fill_row(const T* x, const int64_t* places, int32_t point, int16_t* row) const {
    for (int64_t c = 0; c < channels_; ++c) {
      for (int64_t t = 0; t < taps_; ++t) {
        row[c * taps_ + t] =
            places[t] < 0 ? int16_t{0} : static_cast<int16_t>(x[c * plane_ + places[t]] - point);
      }
    }
    std::fill(row + channels_ * taps_, row + length_, int16_t{0});
  }

  void run_unit(const RunContext& context, const int16_t* w, int16_t* windows, int64_t image_group,
                int64_t first) const {
    const int64_t count = std::min(kPositions, positions_ - first), group = image_group % groups_;
    const int64_t x_first = image_group * channels_ * plane_;
    const int32_t point = point_at(context, x_point_, 0);
    auto* places = reinterpret_cast<int64_t*>(windows + kPositions * length_);  // a multiple of 64 bytes on
    for (int64_t p = 0; p < count; ++p) {
      place_taps(first + p, places);
      int16_t* row = windows + p * length_;
      if (x_.dtype == ir::DType::kI8) {
        fill_row(context.read<int8_t>(x_) + x_first, places, point, row);
      } else {
        fill_row(context.read<uint8_t>(x_) + x_first, places, point, row);
      }
    }
    int32_t* y = context.write<int32_t>(y_) + image_group * group_out_ * positions_ + first;
    product_of_rows({w + group * group_out_ * length_, group_out_}, {windows, count}, length_, y, positions_);
    if (!w_point_.present()) return;
    const int64_t step = w_point_.elements() == 1 ? 0 : 1;
    for (int64_t p = 0; p < count; ++p) {
      const auto sum = static_cast<uint32_t>(sum_of_row(windows + p * length_, length_));
      for (int64_t o = 0; o < group_out_; ++o) {
        const auto taken =
            static_cast<uint32_t>(point_at(context, w_point_, (group * group_out_ + o) * step));
        int32_t& to = y[o * positions_ + p];
        to = static_cast<int32_t>(static_cast<uint32_t>(to) - taken * sum);
      }
    }
  }

  Operand x_, w_, x_point_, w_point_, y_;
  ir::Window window_;
  int64_t groups_ = 1, group_out_ = 0, channels_ = 0, plane_ = 0, positions_ = 0, taps_ = 0, length_ = 0;
  WideWeight w_wide_;
  int width_ = 1;
  uint64_t windows_offset_ = 0, piece_bytes_ = 0, scratch_ = 0, base_ = 0;
};

bool empty(const Lowering& lowering) {
  return lowering.outputs[0].elements() == 0 || lowering.inputs[0].elements() == 0;
}

// A zero point of b for every row of the sum, or of a for every term, is no more than ir allows.
bool points_along(const Operand& point, size_t axis_from_end) {
  return !point.present() || point.extents.rank() < axis_from_end ||
         point.extents[point.extents.rank() - axis_from_end] == 1;
}

Result<std::unique_ptr<Step>> lower_matmul_integer(Lowering& lowering) {
  const auto point = [&](size_t i) { return i < lowering.inputs.size() ? lowering.inputs[i] : Operand(); };
  const bool vector_points = lowering.inputs[1].extents.rank() == 1 && point(3).elements() > 1;
  if (empty(lowering) || vector_points || !points_along(point(2), 1) || !points_along(point(3), 2))
    return reference_step(lowering);
  return MatMulIntegerStep::make(lowering);
}

Result<std::unique_ptr<Step>> lower_conv_integer(Lowering& lowering) {
  return empty(lowering) ? reference_step(lowering) : ConvIntegerStep::make(lowering);
}

}  // namespace

std::span<const LoweringEntry> integer_lowerings() {
  static constexpr LoweringEntry kEntries[] = {
      {"MatMulInteger", lower_matmul_integer},
      {"ConvInteger", lower_conv_integer},
  };
  return kEntries;
}

}  // namespace heddle::host
