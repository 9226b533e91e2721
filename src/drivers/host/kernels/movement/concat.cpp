// Concat: each operand is copied to its part of the output.
#include <cstring>

#include "drivers/host/kernels/elementwise/blocks.h"
#include "drivers/host/kernels/elementwise/chunks.h"
#include "drivers/host/kernels/movement/movement.h"
#include "drivers/host/kernels/movement/strided.h"

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

}  // namespace

LoweredStep lower_concat(Lowering& lowering) {
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(lowering, 0));
  return std::unique_ptr<Step>(std::make_unique<ConcatStep>(lowering, axis));
}

}  // namespace heddle::host
