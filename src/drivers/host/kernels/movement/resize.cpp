// Resize. Nearest moves elements of any size. Linear and cubic in f32: the two innermost axes in one go, rows
// interpolated along the last axis kept while they are needed; other axes one pass each.
#include <algorithm>
#include <array>
#include <cstring>

#include "drivers/host/kernels/elementwise/chunks.h"
#include "drivers/host/kernels/elementwise/vectorised.h"
#include "drivers/host/kernels/movement/movement.h"
#include "drivers/host/kernels/movement/strided.h"
#include "drivers/host/layout/channel_layout.h"
#include "drivers/host/machine/aligned_bytes.h"
#include "drivers/host/onednn/float_steps.h"
#include "ir/resample.h"

namespace heddle::host {

namespace {

template <class T>
void pick_as(std::byte* to, const std::byte* from, const int32_t* index, int64_t count) {
  T* d = reinterpret_cast<T*>(to);
  const T* s = reinterpret_cast<const T*>(from);
  for (int64_t i = 0; i < count; ++i) d[i] = s[index[i]];
}

void pick(std::byte* to, const std::byte* from, const int32_t* index, int64_t count, int64_t size) {
  switch (size) {
    case 1:
      return pick_as<uint8_t>(to, from, index, count);
    case 2:
      return pick_as<uint16_t>(to, from, index, count);
    case 4:
      return pick_as<uint32_t>(to, from, index, count);
    case 8:
      return pick_as<uint64_t>(to, from, index, count);
    default:
      for (int64_t i = 0; i < count; ++i)
        std::memcpy(to + i * size, from + index[i] * size, static_cast<size_t>(size));
  }
}

// One map per axis up to the last that changes; what lies right of it is one block.
class NearestStep final : public Step {
 public:
  NearestStep(const Lowering& lowering, const std::vector<ir::ResizeAxis>& axes)
      : from_(lowering.inputs[0]),
        to_(lowering.outputs[0]),
        block_(ir::size_of(to_.dtype)),
        width_(lowering.width) {
    const size_t rank = to_.extents.rank();
    size_t kept = 0;
    for (const ir::ResizeAxis& axis : axes) kept = std::max(kept, axis.axis + 1);
    for (size_t axis = kept; axis < rank; ++axis) block_ *= to_.extents[axis];
    maps_.resize(kept);
    for (size_t axis = 0; axis < kept; ++axis) {
      for (int64_t i = 0; i < to_.extents[axis]; ++i) maps_[axis].push_back(static_cast<int32_t>(i));
    }
    for (const ir::ResizeAxis& axis : axes) {
      const ir::AxisTaps taps = ir::taps_of(lowering.node, axis);
      for (int64_t i = 0; i < axis.out; ++i)
        maps_[axis.axis][static_cast<size_t>(i)] = static_cast<int32_t>(taps.picked(i));
    }
  }

  Status run(const RunContext& context) const override {
    const std::byte* from = context.read(from_);
    std::byte* to = context.write(to_);
    const std::vector<int32_t>& last = maps_.back();
    const int64_t inner = static_cast<int64_t>(last.size());
    const int64_t row_bytes = inner * block_;
    split(context.caller, rows(), 1, to_.elements(), width_, [&](int64_t begin, int64_t end, int) {
      int64_t before = -1;
      for (int64_t row = begin; row < end; ++row) {
        const int64_t source = source_row(row);
        std::byte* line = to + row * row_bytes;
        if (source == before) {
          std::memcpy(line, line - row_bytes, static_cast<size_t>(row_bytes));
        } else {
          pick(line, from + source * from_.extents[maps_.size() - 1] * block_, last.data(), inner, block_);
        }
        before = source;
      }
    });
    return {};
  }

  uint64_t resident_bytes() const override {
    uint64_t bytes = 256;
    for (const auto& map : maps_) bytes += map.size() * sizeof(int32_t);
    return bytes;
  }
  Sharing sharing() const override { return sharing_of_split(rows(), 1, to_.elements(), width_, "rows"); }

 private:
  int64_t rows() const {
    const auto inner = static_cast<int64_t>(maps_.back().size());
    return to_.elements() * ir::size_of(to_.dtype) / block_ / inner;
  }
  int64_t source_row(int64_t row) const {
    int64_t source = 0, step = 1;
    for (size_t axis = maps_.size() - 1; axis-- > 0;) {
      const int64_t extent = static_cast<int64_t>(maps_[axis].size());
      source += maps_[axis][static_cast<size_t>(row % extent)] * step;
      step *= from_.extents[axis];
      row /= extent;
    }
    return source;
  }

  Operand from_;
  Operand to_;
  std::vector<std::vector<int32_t>> maps_;
  int64_t block_;  // bytes
  int width_;
};

// The weights of one axis, tap by tap.
struct Taps {
  int64_t in = 1, out = 1, count = 1;
  std::vector<int32_t> index;  // [count][out]
  std::vector<float> weight;

  static Taps identity(int64_t extent) {
    Taps taps;
    taps.in = taps.out = extent;
    for (int64_t i = 0; i < extent; ++i) taps.index.push_back(static_cast<int32_t>(i));
    taps.weight.assign(static_cast<size_t>(extent), 1.0f);
    return taps;
  }
  static Taps of(const ir::Node& node, const ir::ResizeAxis& axis) {
    const ir::AxisTaps from = ir::taps_of(node, axis);
    Taps taps;
    taps.in = axis.in;
    taps.out = axis.out;
    taps.count = from.count;
    for (int64_t t = 0; t < from.count; ++t) {
      for (int64_t i = 0; i < axis.out; ++i) {
        taps.index.push_back(static_cast<int32_t>(from.index[static_cast<size_t>(i * from.count + t)]));
        taps.weight.push_back(static_cast<float>(from.weight[static_cast<size_t>(i * from.count + t)]));
      }
    }
    return taps;
  }
  int32_t place(int64_t tap, int64_t at) const { return index[static_cast<size_t>(tap * out + at)]; }
  float share(int64_t tap, int64_t at) const { return weight[static_cast<size_t>(tap * out + at)]; }
  uint64_t bytes() const { return index.size() * 8; }
};

HEDDLE_VECTORISED void along_row(const float* from, const int32_t* index, const float* weight, int64_t taps,
                                 int64_t count, float* to) {
  if (taps == 2) {
    const int32_t* right = index + count;
    const float* share = weight + count;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) to[i] = weight[i] * from[index[i]] + share[i] * from[right[i]];
    return;
  }
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] = weight[i] * from[index[i]];
  for (int64_t t = 1; t < taps; ++t) {
    const int32_t* place = index + t * count;
    const float* share = weight + t * count;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) to[i] += share[i] * from[place[i]];
  }
}

HEDDLE_VECTORISED void start_sum(const float* x, float w, int64_t count, float* to) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] = w * x[i];
}
HEDDLE_VECTORISED void add_to_sum(const float* x, float w, int64_t count, float* to) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] += w * x[i];
}
HEDDLE_VECTORISED void sum_of_two(const float* x, float v, const float* y, float w, int64_t count,
                                  float* to) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] = v * x[i] + w * y[i];
}

class PlaneStep final : public Step {
 public:
  PlaneStep(const Lowering& lowering, Taps down, Taps along)
      : from_(lowering.inputs[0]),
        to_(lowering.outputs[0]),
        down_(std::move(down)),
        along_(std::move(along)),
        keeps_rows_(along_.count == 1),
        width_(lowering.width) {}

  Status run(const RunContext& context) const override {
    split(context.caller, rows(), 1, work(), width_, [&](int64_t begin, int64_t end, int piece) {
      float* ring = reinterpret_cast<float*>(context.arena + scratch_) + piece * ring_elements();
      write_rows(context, begin, end, ring);
    });
    return {};
  }

  uint64_t scratch_bytes() const override {
    return static_cast<uint64_t>(ring_elements() * width_ * kPiecesPerThread) * sizeof(float);
  }
  void set_scratch(uint64_t offset) override { scratch_ = offset; }
  uint64_t resident_bytes() const override { return 256 + down_.bytes() + along_.bytes(); }
  Sharing sharing() const override { return sharing_of_split(rows(), 1, work(), width_, "rows"); }

 private:
  int64_t rows() const { return to_.elements() / along_.out; }
  int64_t work() const { return to_.elements() * (down_.count + along_.count); }
  static constexpr int64_t kNone = -1;

  int64_t pitch() const { return (along_.out + 15) / 16 * 16; }
  // Rows of one window, each behind the number of the row it holds.
  int64_t ring_elements() const { return keeps_rows_ ? 0 : down_.count * (pitch() + 16); }

  // The row of the operand, interpolated along the last axis. A window holds at most down_.count distinct
  // neighbouring rows, so they never share a place of the ring.
  const float* row(const float* from, int64_t number, float* ring) const {
    const float* source = from + number * along_.in;
    if (keeps_rows_) return source;
    float* slot = ring + number % down_.count * (pitch() + 16);
    int64_t held;
    std::memcpy(&held, slot, sizeof(held));
    if (held != number) {
      along_row(source, along_.index.data(), along_.weight.data(), along_.count, along_.out, slot + 16);
      std::memcpy(slot, &number, sizeof(number));
    }
    return slot + 16;
  }

  void write_rows(const RunContext& context, int64_t begin, int64_t end, float* ring) const {
    const float* from = context.read<float>(from_);
    float* to = context.write<float>(to_) + begin * along_.out;
    for (int64_t i = 0; i < ring_elements(); i += pitch() + 16) std::memcpy(ring + i, &kNone, sizeof(kNone));
    for (int64_t at = begin; at < end; ++at, to += along_.out) {
      const int64_t y = at % down_.out;
      const int64_t first = at / down_.out * down_.in;
      const auto line = [&](int64_t t) { return row(from, first + down_.place(t, y), ring); };
      if (down_.count == 1) {
        std::memcpy(to, line(0), static_cast<size_t>(along_.out) * sizeof(float));
      } else if (down_.count == 2) {
        const float* above = line(0);
        sum_of_two(above, down_.share(0, y), line(1), down_.share(1, y), along_.out, to);
      } else {
        start_sum(line(0), down_.share(0, y), along_.out, to);
        for (int64_t t = 1; t < down_.count; ++t) add_to_sum(line(t), down_.share(t, y), along_.out, to);
      }
    }
  }

  Operand from_;
  Operand to_;
  Taps down_;   // the axis before the last
  Taps along_;  // the last
  bool keeps_rows_;
  int width_;
  uint64_t scratch_ = 0;
};

// One pass an axis, through two buffers in turn.
class PassesStep final : public Step {
 public:
  PassesStep(const Lowering& lowering, const std::vector<ir::ResizeAxis>& axes)
      : from_(lowering.inputs[0]), to_(lowering.outputs[0]), width_(lowering.width) {
    ir::Extents extents = from_.extents;
    for (const ir::ResizeAxis& axis : axes) {
      const Lanes lanes(extents, axis.axis);
      passes_.push_back({lanes.outer, lanes.inner, Taps::of(lowering.node, axis)});
      extents[axis.axis] = axis.out;
      if (passes_.size() < axes.size())
        buffer_ = std::max(buffer_, aligned(static_cast<uint64_t>(extents.elements()) * sizeof(float)));
    }
  }

  Status run(const RunContext& context) const override {
    const float* from = context.read<float>(from_);
    for (size_t i = 0; i < passes_.size(); ++i) {
      float* to = i + 1 == passes_.size()
                      ? context.write<float>(to_)
                      : reinterpret_cast<float*>(context.arena + scratch_ + i % 2 * buffer_);
      run_pass(context, passes_[i], from, to);
      from = to;
    }
    return {};
  }

  uint64_t scratch_bytes() const override { return 2 * buffer_; }
  void set_scratch(uint64_t offset) override { scratch_ = offset; }
  uint64_t resident_bytes() const override {
    uint64_t bytes = 256;
    for (const Pass& pass : passes_) bytes += pass.taps.bytes();
    return bytes;
  }
  Sharing sharing() const override {
    const Pass& pass = passes_.back();
    const int64_t rows = pass.outer * pass.taps.out;
    return sharing_of_split(rows, 1, rows * pass.inner * pass.taps.count, width_, "rows");
  }

 private:
  struct Pass {
    int64_t outer, inner;
    Taps taps;
  };

  void run_pass(const RunContext& context, const Pass& pass, const float* from, float* to) const {
    const Taps& taps = pass.taps;
    const int64_t rows = pass.outer * taps.out;
    split(context.caller, rows, 1, rows * pass.inner * taps.count, width_,
          [&](int64_t begin, int64_t end, int) {
            for (int64_t row = begin; row < end; ++row) {
              const float* plane = from + row / taps.out * taps.in * pass.inner;
              float* line = to + row * pass.inner;
              const int64_t at = row % taps.out;
              start_sum(plane + taps.place(0, at) * pass.inner, taps.share(0, at), pass.inner, line);
              for (int64_t t = 1; t < taps.count; ++t)
                add_to_sum(plane + taps.place(t, at) * pass.inner, taps.share(t, at), pass.inner, line);
            }
          });
  }

  Operand from_;
  Operand to_;
  std::vector<Pass> passes_;
  uint64_t buffer_ = 0;
  int width_;
  uint64_t scratch_ = 0;
};

// While the tables are made: ir's index and weight, and ours.
constexpr uint64_t kTapBytes = 24;

// The axes that change. Empty when none does.
Result<std::vector<ir::ResizeAxis>> changing_axes(const Lowering& lowering) {
  enum : size_t { kScales = 2, kSizes = 3 };
  const auto given = [&](size_t i) {
    return lowering.node.has_input(i) && lowering.inputs[i].elements() > 0;
  };
  std::vector<ir::ResizeAxis> all;
  // As the node has them: of turned operands, the channels from the end.
  const size_t rank = lowering.inputs[0].extents.rank();
  ir::Extents in;
  for (size_t i = 0; i < rank; ++i)
    in.push_back(lowering.inputs[0].extents[lowering.turned ? turned_axis(i, rank) : i]);
  if (given(kScales)) {
    const auto& scales = lowering.value(kScales).constant;
    if (!scales.has_value())
      return Status::unsupported("scales is known only when the model runs; the host needs a constant");
    HEDDLE_TRY_ASSIGN(all, ir::resize_axes(lowering.node, in, nullptr, &*scales, nullptr));
  } else {
    HEDDLE_TRY_ASSIGN(const std::vector<int64_t> numbers, numbers_of(lowering, kSizes, "sizes"));
    const ir::Tensor sizes = ir::Tensor::of_i64(numbers);
    HEDDLE_TRY_ASSIGN(all, ir::resize_axes(lowering.node, in, nullptr, nullptr, &sizes));
  }
  std::vector<ir::ResizeAxis> changing;
  for (ir::ResizeAxis& axis : all) {
    if (!axis.changes(lowering.node)) continue;
    if (lowering.turned) axis.axis = turned_axis(axis.axis, rank);
    changing.push_back(axis);
  }
  std::sort(changing.begin(), changing.end(), [](const auto& a, const auto& b) { return a.axis < b.axis; });
  uint64_t taps = 0;
  for (const ir::ResizeAxis& axis : changing) taps += ir::taps_max(lowering.node, axis);
  HEDDLE_TRY(lowering.has_room_for(taps * kTapBytes, "a table of indices and weights"));
  return changing;
}

LoweredStep lower_weighted(Lowering& lowering) {
  HEDDLE_TRY_ASSIGN(const std::vector<ir::ResizeAxis> axes, changing_axes(lowering));
  const ir::Extents& in = lowering.inputs[0].extents;
  const size_t rank = in.rank();
  if (axes.empty() || axes.front().axis + 2 < rank || axes.back().axis + 1 != rank)
    return axes.empty() ? reference_step(lowering)
                        : LoweredStep(std::unique_ptr<Step>(std::make_unique<PassesStep>(lowering, axes)));
  Taps down =
      axes.size() == 2 ? Taps::of(lowering.node, axes[0]) : Taps::identity(rank < 2 ? 1 : in[rank - 2]);
  return std::unique_ptr<Step>(
      std::make_unique<PlaneStep>(lowering, std::move(down), Taps::of(lowering.node, axes.back())));
}

}  // namespace

LoweredStep lower_resize(Lowering& lowering) {
  const bool cropped = lowering.node.attributes.str("coordinate_transformation_mode") == "tf_crop_and_resize";
  if (cropped || lowering.outputs[0].elements() == 0) return reference_step(lowering);
  if (lowering.node.attributes.str("mode", "nearest") != "nearest")
    return lower_floats(lowering, lower_weighted);
  HEDDLE_TRY_ASSIGN(const std::vector<ir::ResizeAxis> axes, changing_axes(lowering));
  if (axes.empty()) return reference_step(lowering);
  return std::unique_ptr<Step>(std::make_unique<NearestStep>(lowering, axes));
}

}  // namespace heddle::host
