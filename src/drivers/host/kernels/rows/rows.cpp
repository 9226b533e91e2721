// Operators that treat each row (or each lane along an axis) by itself: softmax and the normalisations.
#include <algorithm>
#include <cmath>
#include <optional>

#include "drivers/host/kernels/elementwise/blocks.h"
#include "drivers/host/kernels/elementwise/chunks.h"
#include "drivers/host/kernels/elementwise/elements.h"
#include "drivers/host/kernels/movement/movement.h"
#include "drivers/host/kernels/movement/strided.h"
#include "drivers/host/kernels/rows/normal_rows.h"
#include "drivers/host/kernels/rows/softmax.h"

namespace heddle::host {

namespace {

// T is what rows are computed in: double for f64, float for the other three. Rows that lie together in T
// are read and written in place; others pass through scratch.
template <class T>
class RowStep : public Step {
 public:
  RowStep(const Lowering& lowering, const Lanes& lanes)
      : from_(lowering.inputs[0]), to_(lowering.outputs[0]), lanes_(lanes), width_(lowering.width) {
    direct_ = is_native(from_.dtype) && lanes.inner == 1;
  }

  Status run(const RunContext& context) const override {
    split(context.caller, rows(), 1, work(), width_, [&](int64_t begin, int64_t end, int piece) {
      T* scratch = reinterpret_cast<T*>(context.arena + scratch_) + piece * piece_elements();
      prepare(context, scratch + 2 * padded());
      for (int64_t row = begin; row < end; ++row) {
        if (direct_) {
          row_at(row, context.read<T>(from_) + row * lanes_.extent,
                 context.write<T>(to_) + row * lanes_.extent, context, scratch + 2 * padded());
        } else {
          with_codec(from_.dtype, [&]<class Codec>(Codec) { through<Codec>(context, row, scratch); });
        }
      }
    });
    return {};
  }

  uint64_t scratch_bytes() const override {
    return static_cast<uint64_t>(width_ * kPiecesPerThread * piece_elements()) * sizeof(T);
  }
  void set_scratch(uint64_t offset) override { scratch_ = offset; }
  Sharing sharing() const override { return sharing_of_split(rows(), 1, work(), width_, "rows"); }

 protected:
  // Called once per piece: `parameters` has room for two rows.
  virtual void prepare(const RunContext&, T* /*parameters*/) const {}
  virtual void row_at(int64_t row, const T* x, T* y, const RunContext& context,
                      const T* parameters) const = 0;

  int64_t padded() const { return (lanes_.extent + 15) / 16 * 16; }
  const Lanes& lanes() const { return lanes_; }

 private:
  int64_t rows() const { return lanes_.extent == 0 ? 0 : lanes_.outer * lanes_.inner; }
  int64_t work() const { return to_.elements() * 4; }  // several times what moving them costs
  int64_t piece_elements() const { return 4 * padded(); }

  template <class Codec>
  void through(const RunContext& context, int64_t row, T* scratch) const {
    const int64_t first = row / lanes_.inner * lanes_.extent * lanes_.inner + row % lanes_.inner;
    const auto* from = context.read<typename Codec::Memory>(from_) + first;
    auto* to = context.write<typename Codec::Memory>(to_) + first;
    for (int64_t a = 0; a < lanes_.extent; ++a)
      scratch[a] = static_cast<T>(Codec::get(from[a * lanes_.inner]));
    row_at(row, scratch, scratch + padded(), context, scratch + 2 * padded());
    for (int64_t a = 0; a < lanes_.extent; ++a) {
      to[a * lanes_.inner] = Codec::put(static_cast<typename Codec::Number>(scratch[padded() + a]));
    }
  }

  Operand from_;
  Operand to_;
  Lanes lanes_;
  bool direct_ = false;
  int width_;
  uint64_t scratch_ = 0;
};

template <class T>
class SoftmaxStep final : public RowStep<T> {
 public:
  SoftmaxStep(const Lowering& lowering, const Lanes& lanes)
      : RowStep<T>(lowering, lanes), log_(lowering.node.is("LogSoftmax")) {}

 private:
  void row_at(int64_t, const T* x, T* y, const RunContext&, const T*) const override {
    log_ ? log_softmax_row(x, y, this->lanes().extent) : softmax_row(x, y, this->lanes().extent);
  }
  bool log_;
};

// A vector of parameters, broadcast over the row and brought to T.
template <class T>
struct RowParameter {
  Operand operand;
  Strided view;
  bool direct = false;

  RowParameter(const Operand& from, const ir::Extents& row)
      : operand(from), view(Strided::broadcast(from.extents, row)) {
    const bool linear = view.form == Strided::Form::kLinear || row.elements() == 1;
    direct = linear && from.dtype == (sizeof(T) == 8 ? ir::DType::kF64 : ir::DType::kF32);
  }
  void load(const RunContext& context, int64_t count, T* to) const {
    with_codec(operand.dtype, [&]<class Codec>(Codec) {
      const auto* from = context.read<typename Codec::Memory>(operand);
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(Codec::get(from[view.offset_of(i)]));
    });
  }
  const T* at(const RunContext& context, const T* loaded) const {
    return direct ? context.read<T>(operand) : loaded;
  }
};

template <class T>
class LayerStep final : public RowStep<T> {
 public:
  LayerStep(const Lowering& lowering, const Lanes& lanes, const ir::Extents& row)
      : RowStep<T>(lowering, lanes),
        scale_(lowering.inputs[1], row),
        centred_(lowering.node.is("LayerNormalization")),
        epsilon_(lowering.node.attributes.f64("epsilon", 1e-5)) {
    if (lowering.node.has_input(2)) bias_.emplace(lowering.inputs[2], row);
  }

 private:
  void prepare(const RunContext& context, T* parameters) const override {
    if (!scale_.direct) scale_.load(context, this->lanes().extent, parameters);
    if (bias_.has_value() && !bias_->direct)
      bias_->load(context, this->lanes().extent, parameters + this->padded());
  }
  void row_at(int64_t, const T* x, T* y, const RunContext& context, const T* parameters) const override {
    const int64_t length = this->lanes().extent;
    const Moments m = centred_ ? moments_of(x, length) : Moments{0, mean_square_of(x, length)};
    const T* scale = scale_.at(context, parameters);
    const T* bias = bias_.has_value() ? bias_->at(context, parameters + this->padded()) : nullptr;
    scale_row(x, y, length, m.mean, 1 / std::sqrt(m.variance + epsilon_), scale, bias);
  }

  RowParameter<T> scale_;
  std::optional<RowParameter<T>> bias_;
  bool centred_;
  double epsilon_;
};

// A row is a group of channels; each channel has one scale and one bias.
template <class T>
class GroupStep final : public RowStep<T> {
 public:
  GroupStep(const Lowering& lowering, const Lanes& lanes, int64_t groups)
      : RowStep<T>(lowering, lanes),
        scale_(lowering.inputs[1]),
        bias_(lowering.inputs[2]),
        groups_(groups),
        channels_(lowering.inputs[0].extents[1] / groups),
        epsilon_(lowering.node.attributes.f64("epsilon", 1e-5)) {}

 private:
  static double number(const RunContext& context, const Operand& operand, int64_t at) {
    return with_codec(operand.dtype, [&]<class Codec>(Codec) {
      return static_cast<double>(Codec::get(context.read<typename Codec::Memory>(operand)[at]));
    });
  }
  void row_at(int64_t row, const T* x, T* y, const RunContext& context, const T*) const override {
    const Moments m = moments_of(x, this->lanes().extent);
    const double factor = 1 / std::sqrt(m.variance + epsilon_);
    const int64_t plane = this->lanes().extent / channels_;
    for (int64_t c = 0; c < channels_; ++c) {
      const int64_t channel = row % groups_ * channels_ + c;
      const double scale = factor * number(context, scale_, channel);
      shift_row(x + c * plane, y + c * plane, plane, m.mean, scale, number(context, bias_, channel));
    }
  }

  Operand scale_;
  Operand bias_;
  int64_t groups_;
  int64_t channels_;  // in a group
  double epsilon_;
};

template <template <class> class Made, class... Arguments>
LoweredStep make_rows(const Lowering& lowering, const Arguments&... arguments) {
  if (lowering.inputs[0].dtype == ir::DType::kF64) {
    return std::unique_ptr<Step>(std::make_unique<Made<double>>(lowering, arguments...));
  }
  return std::unique_ptr<Step>(std::make_unique<Made<float>>(lowering, arguments...));
}

LoweredStep lower_softmax(Lowering& lowering) {
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(lowering, -1));
  return make_rows<SoftmaxStep>(lowering, Lanes(lowering.inputs[0].extents, axis));
}

LoweredStep lower_layer(Lowering& lowering) {
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(lowering, -1));
  const ir::Extents& x = lowering.inputs[0].extents;
  const ir::Extents row(x.span().subspan(axis));
  Lanes lanes(x, axis);
  lanes.extent = row.elements();
  lanes.inner = 1;
  return make_rows<LayerStep>(lowering, lanes, row);
}

LoweredStep lower_group(Lowering& lowering) {
  const ir::Extents& x = lowering.inputs[0].extents;
  const int64_t groups = lowering.node.attributes.i64("num_groups", x[1]);
  Lanes lanes(x, 0);
  lanes.outer = x[0] * groups;
  lanes.extent = lanes.outer == 0 ? 0 : x.elements() / lanes.outer;
  lanes.inner = 1;
  return make_rows<GroupStep>(lowering, lanes, groups);
}

}  // namespace

std::span<const LoweringEntry> row_lowerings() {
  static constexpr LoweringEntry kEntries[] = {
      {"Softmax", lower_softmax},          {"LogSoftmax", lower_softmax},
      {"LayerNormalization", lower_layer}, {"RMSNormalization", lower_layer},
      {"GroupNormalization", lower_group}, {"InstanceNormalization", lower_group},
  };
  return kEntries;
}

}  // namespace heddle::host
