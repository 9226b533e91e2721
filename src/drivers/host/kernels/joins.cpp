// Operators that write their output in parts: Concat, Pad, Trilu, OneHot, and the makers of constants.
#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "drivers/host/kernels/blocks.h"
#include "drivers/host/kernels/chunks.h"
#include "drivers/host/kernels/movement.h"
#include "drivers/host/kernels/strided.h"

namespace heddle::host {

namespace {

class ConcatStep final : public Step {
 public:
  ConcatStep(const Lowering& lowering, size_t axis)
      : parts_(lowering.inputs), to_(lowering.outputs[0]), width_(lowering.width) {
    const Lanes lanes(to_.extents, axis);
    rows_ = lanes.outer;
    const int64_t size = ir::size_of(to_.dtype);
    pitch_ = lanes.extent * lanes.inner * size;
    for (const Operand& part : parts_) row_bytes_.push_back(part.extents[axis] * lanes.inner * size);
  }

  Status run(const RunContext& context) const override {
    std::byte* to = context.write(to_);
    split(context.caller, rows_, 1, to_.elements(), width_, [&](int64_t begin, int64_t end, int) {
      int64_t left = 0;
      for (size_t i = 0; i < parts_.size(); ++i) {
        const std::byte* from = context.read(parts_[i]);
        const int64_t bytes = row_bytes_[i];
        for (int64_t row = begin; row < end && bytes > 0; ++row) {
          std::memcpy(to + row * pitch_ + left, from + row * bytes, static_cast<size_t>(bytes));
        }
        left += bytes;
      }
    });
    return {};
  }

 private:
  std::vector<Operand> parts_;
  Operand to_;
  std::vector<int64_t> row_bytes_;
  int64_t rows_ = 0;
  int64_t pitch_ = 0;
  int width_;
};

// One map per axis: the place in the operand that each index of the output reads, or kOutside.
class PadStep final : public Step {
 public:
  static constexpr int64_t kOutside = -1;

  PadStep(const Lowering& lowering, std::vector<std::vector<int64_t>> maps)
      : from_(lowering.inputs[0]),
        to_(lowering.outputs[0]),
        maps_(std::move(maps)),
        size_(ir::size_of(to_.dtype)),
        width_(lowering.width) {
    if (lowering.node.has_input(2)) fill_ = lowering.inputs[2];
    strides_ = row_major(from_.extents);
    inner_ = maps_.empty() ? 1 : static_cast<int64_t>(maps_.back().size());
    run_begin_ = run_end_ = 0;
    if (maps_.empty()) return;
    // The stretch of a row that is a plain copy: it begins where the map first says 0.
    const std::vector<int64_t>& last = maps_.back();
    while (run_begin_ < inner_ && last[static_cast<size_t>(run_begin_)] == kOutside) ++run_begin_;
    run_end_ = run_begin_;
    while (run_end_ < inner_ && run_end_ - run_begin_ < from_.extents[from_.extents.rank() - 1] &&
           last[static_cast<size_t>(run_end_)] ==
               last[static_cast<size_t>(run_begin_)] + run_end_ - run_begin_) {
      ++run_end_;
    }
  }

  Status run(const RunContext& context) const override {
    constexpr std::array<std::byte, 8> kZero{};
    const std::byte* fill_value = fill_.present() ? context.read(fill_) : kZero.data();
    const std::byte* from = context.read(from_);
    std::byte* to = context.write(to_);
    const int64_t count = to_.elements();
    if (count == 0) return {};
    if (maps_.empty()) {
      std::memcpy(to, from, static_cast<size_t>(size_));
      return {};
    }
    split(context.caller, count / inner_, 1, count, width_, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) write_row(from, to + row * inner_ * size_, row, fill_value);
    });
    return {};
  }

 private:
  void write_row(const std::byte* from, std::byte* to, int64_t row, const std::byte* fill_value) const {
    int64_t offset = 0;
    for (size_t axis = maps_.size() - 1; axis-- > 0;) {
      const int64_t extent = static_cast<int64_t>(maps_[axis].size());
      const int64_t place = maps_[axis][static_cast<size_t>(row % extent)];
      row /= extent;
      if (place == kOutside) {
        fill(to, fill_value, inner_, size_);
        return;
      }
      offset += place * strides_[axis];
    }
    const std::byte* source = from + offset * size_;
    const std::vector<int64_t>& last = maps_.back();
    const auto copy_one = [&](int64_t i) {
      const int64_t place = last[static_cast<size_t>(i)];
      std::memcpy(to + i * size_, place == kOutside ? fill_value : source + place * size_,
                  static_cast<size_t>(size_));
    };
    for (int64_t i = 0; i < run_begin_; ++i) copy_one(i);
    if (run_end_ > run_begin_) {
      std::memcpy(to + run_begin_ * size_, source + last[static_cast<size_t>(run_begin_)] * size_,
                  static_cast<size_t>((run_end_ - run_begin_) * size_));
    }
    for (int64_t i = run_end_; i < inner_; ++i) copy_one(i);
  }

  Operand from_;
  Operand fill_;
  Operand to_;
  std::vector<std::vector<int64_t>> maps_;
  std::array<int64_t, ir::kMaxRank> strides_{};
  int64_t inner_ = 1;
  int64_t run_begin_ = 0;
  int64_t run_end_ = 0;
  int64_t size_;
  int width_;
};

int64_t pad_source(int64_t at, int64_t extent, const std::string& mode) {
  if (at >= 0 && at < extent) return at;
  if (mode == "edge") return std::clamp<int64_t>(at, 0, extent - 1);
  if (mode == "wrap") return (at % extent + extent) % extent;
  if (mode == "reflect") return at < 0 ? -at : 2 * (extent - 1) - at;
  return PadStep::kOutside;
}

class TriluStep final : public Step {
 public:
  explicit TriluStep(const Lowering& lowering)
      : from_(lowering.inputs[0]),
        to_(lowering.outputs[0]),
        upper_(lowering.node.attributes.i64("upper", 1) != 0),
        width_(lowering.width) {
    if (lowering.node.has_input(1)) k_ = lowering.inputs[1];
  }

  Status run(const RunContext& context) const override {
    const int64_t k = k_.present() ? read_index(context, k_, 0) : 0;
    const size_t rank = to_.extents.rank();
    const int64_t rows = to_.extents[rank - 2], columns = to_.extents[rank - 1];
    const int64_t size = ir::size_of(to_.dtype);
    const int64_t count = columns == 0 ? 0 : to_.elements() / columns;
    const std::byte* from = context.read(from_);
    std::byte* to = context.write(to_);
    split(context.caller, count, 1, to_.elements(), width_, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        // Above the diagonal: columns from row + k on. Below: up to row + k. Bounds are compared before
        // they are added to row.
        const int64_t shift = std::clamp<int64_t>(k, -rows - 1, columns + 1);
        const int64_t border = std::clamp<int64_t>(row % rows + shift + (upper_ ? 0 : 1), 0, columns);
        const int64_t first = upper_ ? border : 0, last = upper_ ? columns : border;
        std::byte* line = to + row * columns * size;
        std::memset(line, 0, static_cast<size_t>(columns * size));
        std::memcpy(line + first * size, from + (row * columns + first) * size,
                    static_cast<size_t>((last - first) * size));
      }
    });
    return {};
  }

 private:
  Operand from_;
  Operand k_;
  Operand to_;
  bool upper_;
  int width_;
};

class OneHotStep final : public Step {
 public:
  OneHotStep(const Lowering& lowering, size_t axis)
      : indices_(lowering.inputs[0]),
        values_(lowering.inputs[2]),
        to_(lowering.outputs[0]),
        lanes_(to_.extents, axis),
        width_(lowering.width) {}

  Status run(const RunContext& context) const override {
    const int64_t size = ir::size_of(to_.dtype);
    const std::byte* values = context.read(values_);
    std::byte* to = context.write(to_);
    const int64_t plane = lanes_.extent * lanes_.inner;
    if (plane == 0) return {};
    split(context.caller, lanes_.outer, 1, to_.elements(), width_, [&](int64_t begin, int64_t end, int) {
      fill(to + begin * plane * size, values, (end - begin) * plane, size);
      for (int64_t at = begin * lanes_.inner; at < end * lanes_.inner; ++at) {
        int64_t index = index_at(context, at);
        if (index < 0) index += lanes_.extent;
        if (index < 0 || index >= lanes_.extent) continue;  // lights nothing, as ONNX says
        const int64_t place = at / lanes_.inner * plane + index * lanes_.inner + at % lanes_.inner;
        std::memcpy(to + place * size, values + size, static_cast<size_t>(size));
      }
    });
    return {};
  }

 private:
  int64_t index_at(const RunContext& context, int64_t at) const {
    alignas(8) std::byte loaded[8];
    alignas(8) std::byte index[8];
    const std::byte* element = context.read(indices_) + at * ir::size_of(indices_.dtype);
    load_block(indices_.dtype)({element, nullptr, nullptr, loaded, 1, 0, 0});
    cast_block(kind_of(indices_.dtype), Kind::kI64)({loaded, nullptr, nullptr, index, 1, 0, 0});
    int64_t value;
    std::memcpy(&value, index, sizeof(value));
    return value;
  }

  Operand indices_;
  Operand values_;
  Operand to_;
  Lanes lanes_;
  int width_;
};

// The same bits as another dtype. A bool is 0 or 1 wherever they come from.
class BitCastStep final : public Step {
 public:
  explicit BitCastStep(const Lowering& lowering) : from_(lowering.inputs[0]), to_(lowering.outputs[0]) {}
  Status run(const RunContext& context) const override {
    const std::byte* from = context.read(from_);
    std::byte* to = context.write(to_);
    const int64_t bytes = to_.elements() * ir::size_of(to_.dtype);
    if (to_.dtype == ir::DType::kBool) {
      for (int64_t i = 0; i < bytes; ++i) to[i] = from[i] == std::byte{0} ? std::byte{0} : std::byte{1};
    } else if (bytes > 0) {
      std::memcpy(to, from, static_cast<size_t>(bytes));
    }
    return {};
  }

 private:
  Operand from_;
  Operand to_;
};

// Extents, and a repeated element: what they write is known when the step is made.
class ConstantStep final : public Step {
 public:
  ConstantStep(const Operand& to, ir::Tensor value) : to_(to), value_(std::move(value)) {}
  Status run(const RunContext& context) const override {
    const std::byte* from = static_cast<const std::byte*>(value_.data());
    if (value_.elements() == 1) {
      fill(context.write(to_), from, to_.elements(), ir::size_of(to_.dtype));
    } else {
      std::memcpy(context.write(to_), from, static_cast<size_t>(value_.bytes()));
    }
    return {};
  }

 private:
  Operand to_;
  ir::Tensor value_;
};

class RangeStep final : public Step {
 public:
  explicit RangeStep(const Lowering& lowering)
      : start_(lowering.inputs[0]), delta_(lowering.inputs[2]), to_(lowering.outputs[0]) {}
  Status run(const RunContext& context) const override {
    const int64_t size = ir::size_of(to_.dtype);
    const ir::Tensor start = ir::Tensor::borrow(to_.dtype, {}, context.read(start_), nullptr);
    const ir::Tensor delta = ir::Tensor::borrow(to_.dtype, {}, context.read(delta_), nullptr);
    for (int64_t i = 0; i < to_.elements(); ++i) {
      ir::Tensor y = ir::Tensor::borrow(to_.dtype, {}, context.write(to_) + i * size, nullptr);
      if (ir::is_float(to_.dtype)) {
        y.set(0, start.get(0) + static_cast<double>(i) * delta.get(0));
      } else {
        const uint64_t step = static_cast<uint64_t>(i) * static_cast<uint64_t>(delta.get_i64(0));
        y.set_i64(0, static_cast<int64_t>(static_cast<uint64_t>(start.get_i64(0)) + step));
      }
    }
    return {};
  }

 private:
  Operand start_;
  Operand delta_;
  Operand to_;
};

}  // namespace

LoweredStep lower_concat(Lowering& lowering) {
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(lowering, 0));
  return std::unique_ptr<Step>(std::make_unique<ConcatStep>(lowering, axis));
}

LoweredStep lower_pad(Lowering& lowering) {
  const ir::Extents& in = lowering.inputs[0].extents;
  const ir::Extents& out = lowering.outputs[0].extents;
  HEDDLE_TRY_ASSIGN(const std::vector<int64_t> pads, numbers_of(lowering, 1, "pads"));
  std::vector<int64_t> axes;
  for (size_t i = 0; i < in.rank(); ++i) axes.push_back(static_cast<int64_t>(i));
  if (lowering.node.has_input(3)) {
    HEDDLE_TRY_ASSIGN(axes, numbers_of(lowering, 3, "axes"));
  }
  std::vector<int64_t> begin(in.rank(), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    HEDDLE_TRY_ASSIGN(const size_t axis, ir::normalize_axis(axes[i], in.rank()));
    begin[axis] = pads[i];
  }
  const std::string mode = lowering.node.attributes.str("mode", "constant");
  const auto entries = static_cast<uint64_t>(std::accumulate(out.begin(), out.end(), int64_t{0}));
  HEDDLE_TRY(lowering.has_room_for(entries * sizeof(int64_t), "a table of indices"));
  std::vector<std::vector<int64_t>> maps(in.rank());
  for (size_t axis = 0; axis < in.rank(); ++axis) {
    maps[axis].reserve(static_cast<size_t>(out[axis]));
    for (int64_t i = 0; i < out[axis]; ++i) maps[axis].push_back(pad_source(i - begin[axis], in[axis], mode));
  }
  return std::unique_ptr<Step>(std::make_unique<PadStep>(lowering, std::move(maps)));
}

LoweredStep lower_trilu(Lowering& lowering) {
  return std::unique_ptr<Step>(std::make_unique<TriluStep>(lowering));
}

LoweredStep lower_one_hot(Lowering& lowering) {
  HEDDLE_TRY_ASSIGN(const size_t axis, ir::normalize_axis(lowering.node.attributes.i64("axis", -1),
                                                          lowering.inputs[0].extents.rank() + 1));
  return std::unique_ptr<Step>(std::make_unique<OneHotStep>(lowering, axis));
}

LoweredStep lower_constant_of_shape(Lowering& lowering) {
  const ir::Attribute* value = lowering.node.attributes.find("value");
  const ir::Tensor* tensor = value == nullptr ? nullptr : std::get_if<ir::Tensor>(value);
  const Operand& to = lowering.outputs[0];
  return std::unique_ptr<Step>(
      std::make_unique<ConstantStep>(to, tensor == nullptr ? ir::Tensor::zeros(to.dtype, {}) : *tensor));
}

LoweredStep lower_range(Lowering& lowering) {
  return std::unique_ptr<Step>(std::make_unique<RangeStep>(lowering));
}

LoweredStep lower_bit_cast(Lowering& lowering) {
  return std::unique_ptr<Step>(std::make_unique<BitCastStep>(lowering));
}

LoweredStep lower_extents(Lowering& lowering) {
  const ir::Extents& in = lowering.inputs[0].extents;
  const Operand& to = lowering.outputs[0];
  if (lowering.node.is("Size")) {
    return std::unique_ptr<Step>(
        std::make_unique<ConstantStep>(to, ir::Tensor::of_i64({in.elements()}).reshaped({})));
  }
  int64_t start = lowering.node.attributes.i64("start", 0);
  if (start < 0) start += static_cast<int64_t>(in.rank());
  start = std::clamp<int64_t>(start, 0, static_cast<int64_t>(in.rank()));
  const int64_t* first = in.begin() + start;
  return std::unique_ptr<Step>(std::make_unique<ConstantStep>(
      to, ir::Tensor::of_i64(std::vector<int64_t>(first, first + to.elements()))));
}

}  // namespace heddle::host
