// Pad, in all its modes.
#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "drivers/host/kernels/elementwise/blocks.h"
#include "drivers/host/kernels/elementwise/chunks.h"
#include "drivers/host/kernels/movement/movement.h"
#include "drivers/host/kernels/movement/strided.h"

namespace heddle::host {

namespace {

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
  Sharing sharing() const override {
    return sharing_of_split(inner_ == 0 ? 0 : to_.elements() / inner_, 1, to_.elements(), width_, "rows");
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

}  // namespace

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

}  // namespace heddle::host
