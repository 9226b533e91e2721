// Concat: each operand is copied to its part of the output.
#include <algorithm>
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
    const int64_t size = ir::size_of(to_.dtype);
    pitch_ = lanes.extent * lanes.inner * size;
    bytes_ = lanes.outer * pitch_;
    for (const Operand& part : parts_) row_bytes_.push_back(part.extents[axis] * lanes.inner * size);
  }

  Status run(const RunContext& context) const override {
    split(context.caller, bytes_, kGrain, to_.elements(), width_,
          [&](int64_t begin, int64_t end, int) { copy(context, begin, end); });
    return {};
  }
  Sharing sharing() const override {
    return sharing_of_split(bytes_, kGrain, to_.elements(), width_, "bytes");
  }

 private:
  static constexpr int64_t kGrain = 4096;

  // These bytes of the output: of one row there may be as many as of all rows.
  void copy(const RunContext& context, int64_t begin, int64_t end) const {
    std::byte* to = context.write(to_);
    int64_t left = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const std::byte* from = context.read(parts_[i]);
      const int64_t bytes = row_bytes_[i];
      for (int64_t row = begin / pitch_; row * pitch_ < end && bytes > 0; ++row) {
        const int64_t first = std::max(begin, row * pitch_ + left);
        const int64_t last = std::min(end, row * pitch_ + left + bytes);
        if (first >= last) continue;
        std::memcpy(to + first, from + row * bytes + (first - row * pitch_ - left),
                    static_cast<size_t>(last - first));
      }
      left += bytes;
    }
  }

  std::vector<Operand> parts_;
  Operand to_;
  std::vector<int64_t> row_bytes_;
  int64_t pitch_ = 0;  // bytes of a row of the output
  int64_t bytes_ = 0;  // and of all rows
  int width_;
};

}  // namespace

LoweredStep lower_concat(Lowering& lowering) {
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(lowering, 0));
  return std::unique_ptr<Step>(std::make_unique<ConcatStep>(lowering, axis));
}

}  // namespace heddle::host
