// Operators that read by index. Indices are checked before anything is copied: the error names the first one
// outside. Where that is one row's mistake, zeros stand for what its index cannot name.
#include <algorithm>
#include <cstring>

#include "drivers/host/kernels/elementwise/chunks.h"
#include "drivers/host/kernels/movement/indices.h"
#include "drivers/host/kernels/movement/strided.h"

namespace heddle::host {

namespace {

void copy_elements(std::byte* to, const std::byte* from, int64_t bytes) {
  // Single elements are the common case beside whole rows; a constant size makes them one move.
  switch (bytes) {
    case 4:
      std::memcpy(to, from, 4);
      break;
    case 8:
      std::memcpy(to, from, 8);
      break;
    default:
      std::memcpy(to, from, static_cast<size_t>(bytes));
      break;
  }
}

// From `offset` bytes on; with kOutside, what lies at Positions::kNone is zeros.
template <bool kOutside>
void copy_from(int64_t position, std::byte* to, const std::byte* from, int64_t offset, int64_t bytes) {
  if (kOutside && position == Positions::kNone) {
    std::memset(to, 0, static_cast<size_t>(bytes));
  } else {
    copy_elements(to, from + offset, bytes);
  }
}

class GatherStep : public Step {
 public:
  explicit GatherStep(const Lowering& lowering)
      : from_(lowering.inputs[0]),
        to_(lowering.outputs[0]),
        size_(ir::size_of(to_.dtype)),
        width_(lowering.width) {}

 protected:
  Operand from_;
  Operand to_;
  int64_t size_;
  int width_;
};

class AxisGatherStep final : public GatherStep {
 public:
  AxisGatherStep(const Lowering& lowering, size_t axis)
      : GatherStep(lowering), indices_(lowering, 1), lanes_(from_.extents, axis) {}

  Status run(const RunContext& context) const override {
    HEDDLE_TRY_ASSIGN(const bool outside, indices_.check(context, 0, 1, lanes_.extent));
    outside ? copy<true>(context) : copy<false>(context);
    return {};
  }
  Sharing sharing() const override {
    return sharing_of_split(lanes_.outer * indices_.elements() * parts_of_row(), 1, to_.elements(), width_,
                            "rows");
  }

 private:
  static constexpr int64_t kPart = 16384;  // bytes of a row, at most, that are copied at once

  template <bool kOutside>
  void copy(const RunContext& context) const {
    const Positions positions = indices_.positions(context);
    const std::byte* from = context.read(from_);
    std::byte* to = context.write(to_);
    const int64_t count = indices_.elements();
    const int64_t bytes = lanes_.inner * size_;
    if (to_.elements() == 0) return;
    // A few rows may be long: each is copied in parts.
    const int64_t parts = parts_of_row();
    split(context.caller, lanes_.outer * count * parts, 1, to_.elements(), width_,
          [&](int64_t begin, int64_t end, int) {
            for (int64_t i = begin; i < end; ++i) {
              const int64_t row = i / parts, first = i % parts * kPart;
              const int64_t at = positions.of<kOutside>(row % count, lanes_.extent);
              const int64_t offset = (row / count * lanes_.extent + at) * bytes + first;
              copy_from<kOutside>(at, to + row * bytes + first, from, offset, std::min(kPart, bytes - first));
            }
          });
  }
  int64_t parts_of_row() const { return (lanes_.inner * size_ + kPart - 1) / kPart; }

  Indices indices_;
  Lanes lanes_;
};

class GatherElementsStep final : public GatherStep {
 public:
  GatherElementsStep(const Lowering& lowering, size_t axis)
      : GatherStep(lowering),
        indices_(lowering, 1),
        extent_(from_.extents[axis]),
        stride_(row_major(from_.extents)[axis]) {
    // The operand as the indices walk it: its axis does not move with them.
    auto strides = row_major(from_.extents);
    strides[axis] = 0;
    walk_ = Strided::make(to_.extents.span(), strides);
  }

  Status run(const RunContext& context) const override {
    HEDDLE_TRY_ASSIGN(const bool outside, indices_.check(context, 0, 1, extent_));
    outside ? copy<true>(context) : copy<false>(context);
    return {};
  }
  Sharing sharing() const override {
    return sharing_of_split(to_.elements(), 256, to_.elements(), width_, "elements");
  }

 private:
  template <bool kOutside>
  void copy(const RunContext& context) const {
    const Positions positions = indices_.positions(context);
    const std::byte* from = context.read(from_);
    std::byte* to = context.write(to_);
    split(context.caller, to_.elements(), 256, to_.elements(), width_, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = positions.of<kOutside>(i, extent_);
        const int64_t offset = (walk_.offset_of(i) + at * stride_) * size_;
        copy_from<kOutside>(at, to + i * size_, from, offset, size_);
      }
    });
  }

  Indices indices_;
  int64_t extent_;
  int64_t stride_;
  Strided walk_;
};

class GatherNdStep final : public GatherStep {
 public:
  explicit GatherNdStep(const Lowering& lowering)
      : GatherStep(lowering), points_(lowering, 1, batch_dims(lowering)) {
    const ir::Extents& indices = lowering.inputs[1].extents;
    const size_t batch = batch_dims(lowering);
    for (size_t i = batch + points_.depth(); i < from_.extents.rank(); ++i) slice_ *= from_.extents[i];
    for (size_t i = 0; i < batch; ++i) batches_ *= from_.extents[i];
    for (size_t i = batch; i + 1 < indices.rank(); ++i) rows_ *= indices[i];
  }

  Status run(const RunContext& context) const override {
    HEDDLE_TRY_ASSIGN(const bool outside, points_.check(context));
    if (to_.elements() == 0) return {};
    outside ? copy<true>(context) : copy<false>(context);
    return {};
  }
  Sharing sharing() const override {
    return sharing_of_split(batches_ * rows_, 1, to_.elements(), width_, "rows");
  }

 private:
  static size_t batch_dims(const Lowering& lowering) {
    return static_cast<size_t>(lowering.node.attributes.i64("batch_dims"));
  }

  template <bool kOutside>
  void copy(const RunContext& context) const {
    const Positions positions = points_.positions(context);
    const std::byte* from = context.read(from_);
    std::byte* to = context.write(to_);
    const int64_t bytes = slice_ * size_;
    const int64_t per_batch = from_.elements() / batches_;
    split(context.caller, batches_ * rows_, 1, to_.elements(), width_, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t at = points_.offset<kOutside>(positions, row);
        const int64_t offset = (row / rows_ * per_batch + at) * size_;
        copy_from<kOutside>(at, to + row * bytes, from, offset, bytes);
      }
    });
  }

  Points points_;
  int64_t batches_ = 1;
  int64_t rows_ = 1;   // of indices in a batch
  int64_t slice_ = 1;  // elements that one row of indices selects
};

}  // namespace

LoweredStep lower_gather(Lowering& lowering) {
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(lowering, 0));
  return std::unique_ptr<Step>(std::make_unique<AxisGatherStep>(lowering, axis));
}

LoweredStep lower_gather_elements(Lowering& lowering) {
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(lowering, 0));
  return std::unique_ptr<Step>(std::make_unique<GatherElementsStep>(lowering, axis));
}

LoweredStep lower_gather_nd(Lowering& lowering) {
  return std::unique_ptr<Step>(std::make_unique<GatherNdStep>(lowering));
}

}  // namespace heddle::host
