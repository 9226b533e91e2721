// Operators that read by index. Indices are checked before anything is copied: the error names the first one
// outside.
#include <algorithm>
#include <cstring>

#include "drivers/host/kernels/chunks.h"
#include "drivers/host/kernels/movement.h"
#include "drivers/host/kernels/strided.h"

namespace heddle::host {

namespace {

template <class Index>
int64_t find_outside(const Index* indices, int64_t count, int64_t extent, int64_t step) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index = indices[i * step];
    if (index < -extent || index >= extent) return i * step;
  }
  return -1;
}

// Every step-th index.
Status check_indices(const RunContext& context, const Operand& indices, int64_t first, int64_t step,
                     int64_t extent, const std::string& node) {
  const int64_t count = (indices.elements() - first + step - 1) / step;
  const int64_t outside = indices.dtype == ir::DType::kI32
                              ? find_outside(context.read<int32_t>(indices) + first, count, extent, step)
                              : find_outside(context.read<int64_t>(indices) + first, count, extent, step);
  if (outside < 0) return {};
  return Status::invalid(node, ": index ", read_index(context, indices, first + outside), " is outside [",
                         -extent, ", ", extent - 1, "]");
}

int64_t place(const RunContext& context, const Operand& indices, int64_t at, int64_t extent) {
  const int64_t index = read_index(context, indices, at);
  return index < 0 ? index + extent : index;
}

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

class GatherStep : public Step {
 public:
  explicit GatherStep(const Lowering& lowering)
      : from_(lowering.inputs[0]),
        indices_(lowering.inputs[1]),
        to_(lowering.outputs[0]),
        node_(lowering.node.describe()),
        size_(ir::size_of(to_.dtype)),
        width_(lowering.width) {}

 protected:
  Operand from_;
  Operand indices_;
  Operand to_;
  std::string node_;
  int64_t size_;
  int width_;
};

class AxisGatherStep final : public GatherStep {
 public:
  AxisGatherStep(const Lowering& lowering, size_t axis) : GatherStep(lowering), lanes_(from_.extents, axis) {}

  Status run(const RunContext& context) const override {
    HEDDLE_TRY(check_indices(context, indices_, 0, 1, lanes_.extent, node_));
    const std::byte* from = context.read(from_);
    std::byte* to = context.write(to_);
    const int64_t count = indices_.elements();
    const int64_t bytes = lanes_.inner * size_;
    if (to_.elements() == 0) return {};
    split(context.caller, lanes_.outer * count, 1, to_.elements(), width_,
          [&](int64_t begin, int64_t end, int) {
            for (int64_t row = begin; row < end; ++row) {
              const int64_t at = place(context, indices_, row % count, lanes_.extent);
              copy_elements(to + row * bytes, from + (row / count * lanes_.extent + at) * bytes, bytes);
            }
          });
    return {};
  }

 private:
  Lanes lanes_;
};

class GatherElementsStep final : public GatherStep {
 public:
  GatherElementsStep(const Lowering& lowering, size_t axis)
      : GatherStep(lowering), extent_(from_.extents[axis]), stride_(row_major(from_.extents)[axis]) {
    // The operand as the indices walk it: its axis does not move with them.
    auto strides = row_major(from_.extents);
    strides[axis] = 0;
    walk_ = Strided::make(to_.extents.span(), strides);
  }

  Status run(const RunContext& context) const override {
    HEDDLE_TRY(check_indices(context, indices_, 0, 1, extent_, node_));
    const std::byte* from = context.read(from_);
    std::byte* to = context.write(to_);
    split(context.caller, to_.elements(), 256, to_.elements(), width_, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t offset = walk_.offset_of(i) + place(context, indices_, i, extent_) * stride_;
        copy_elements(to + i * size_, from + offset * size_, size_);
      }
    });
    return {};
  }

 private:
  int64_t extent_;
  int64_t stride_;
  Strided walk_;
};

class GatherNdStep final : public GatherStep {
 public:
  explicit GatherNdStep(const Lowering& lowering)
      : GatherStep(lowering), batch_(static_cast<size_t>(lowering.node.attributes.i64("batch_dims"))) {
    depth_ = indices_.extents[indices_.extents.rank() - 1];
    strides_ = row_major(from_.extents);
    for (size_t i = batch_ + static_cast<size_t>(depth_); i < from_.extents.rank(); ++i)
      slice_ *= from_.extents[i];
    for (size_t i = 0; i < batch_; ++i) batches_ *= from_.extents[i];
    for (size_t i = batch_; i + 1 < indices_.extents.rank(); ++i) rows_ *= indices_.extents[i];
  }

  Status run(const RunContext& context) const override {
    for (int64_t i = 0; i < depth_; ++i) {
      HEDDLE_TRY(
          check_indices(context, indices_, i, depth_, from_.extents[batch_ + static_cast<size_t>(i)], node_));
    }
    if (to_.elements() == 0) return {};
    const std::byte* from = context.read(from_);
    std::byte* to = context.write(to_);
    const int64_t per_batch = from_.elements() / batches_;
    split(context.caller, batches_ * rows_, 1, to_.elements(), width_, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        int64_t offset = row / rows_ * per_batch;
        for (int64_t i = 0; i < depth_; ++i) {
          const size_t axis = batch_ + static_cast<size_t>(i);
          offset += place(context, indices_, row * depth_ + i, from_.extents[axis]) * strides_[axis];
        }
        copy_elements(to + row * slice_ * size_, from + offset * size_, slice_ * size_);
      }
    });
    return {};
  }

 private:
  size_t batch_;
  int64_t depth_ = 1;
  int64_t batches_ = 1;
  int64_t rows_ = 1;   // of indices in a batch
  int64_t slice_ = 1;  // elements that one row of indices selects
  std::array<int64_t, ir::kMaxRank> strides_{};
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
