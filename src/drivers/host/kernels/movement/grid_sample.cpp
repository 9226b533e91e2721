// GridSample in f32: places and weights of some points at a time, then all channels.
#include <algorithm>
#include <array>

#include "drivers/host/kernels/elementwise/chunks.h"
#include "drivers/host/kernels/elementwise/vectorised.h"
#include "drivers/host/kernels/movement/movement.h"
#include "drivers/host/kernels/reference/reference_step.h"
#include "ir/sampler.h"

namespace heddle::host {

namespace {

// What has no weight is not added: an infinity there would become NaN.
HEDDLE_VECTORISED void add_taps(const float* plane, const int32_t* place, const float* weight, int64_t count,
                                float* sum) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float part = weight[i] * plane[place[i]];
    sum[i] += weight[i] != 0 ? part : 0.0f;
  }
}

class GridSampleStep final : public Step {
 public:
  explicit GridSampleStep(const Lowering& lowering)
      : image_(lowering.inputs[0]),
        grid_(lowering.inputs[1]),
        to_(lowering.outputs[0]),
        sampler_(lowering.node, image_.extents),
        width_(lowering.width) {
    for (size_t axis = 0; axis < sampler_.axes(); ++axis) {
      taps_ *= static_cast<int64_t>(sampler_.taps_per_axis());
      plane_ *= image_.extents[2 + axis];
      points_ *= to_.extents[2 + axis];
    }
  }

  Status run(const RunContext& context) const override {
    const int64_t blocks = blocks_of_image();
    split(context.caller, image_.extents[0] * blocks, 1, to_.elements() * taps_, width_,
          [&](int64_t begin, int64_t end, int piece) {
            std::byte* scratch = context.arena + scratch_ + static_cast<uint64_t>(piece) * piece_bytes();
            for (int64_t i = begin; i < end; ++i) sample(context, i / blocks, i % blocks * kPoints, scratch);
          });
    return {};
  }

  uint64_t scratch_bytes() const override {
    return piece_bytes() * static_cast<uint64_t>(width_ * kPiecesPerThread);
  }
  void set_scratch(uint64_t offset) override { scratch_ = offset; }
  Sharing sharing() const override {
    return sharing_of_split(image_.extents[0] * blocks_of_image(), 1, to_.elements() * taps_, width_,
                            "points");
  }

 private:
  int64_t blocks_of_image() const { return (points_ + kPoints - 1) / kPoints; }
  static constexpr int64_t kPoints = 64;
  static constexpr size_t kAxesMax = ir::kMaxRank - 2;

  uint64_t piece_bytes() const { return static_cast<uint64_t>(taps_ * kPoints) * 8; }

  // Points [first, first + kPoints) of example n.
  void sample(const RunContext& context, int64_t n, int64_t first, std::byte* scratch) const {
    int32_t* places = reinterpret_cast<int32_t*>(scratch);
    float* weights = reinterpret_cast<float*>(scratch) + taps_ * kPoints;
    const int64_t count = std::min(kPoints, points_ - first);
    for (int64_t i = 0; i < count; ++i) find_taps(context, n * points_ + first + i, i, places, weights);
    for (int64_t c = 0; c < image_.extents[1]; ++c) {
      const int64_t channel = n * image_.extents[1] + c;
      const float* plane = context.read<float>(image_) + channel * plane_;
      float* to = context.write<float>(to_) + channel * points_ + first;
      std::fill_n(to, count, 0.0f);
      for (int64_t t = 0; t < taps_; ++t)
        add_taps(plane, places + t * kPoints, weights + t * kPoints, count, to);
    }
  }

  void find_taps(const RunContext& context, int64_t point, int64_t i, int32_t* places, float* weights) const {
    const size_t axes = sampler_.axes();
    const float* at = context.read<float>(grid_) + point * static_cast<int64_t>(axes);
    std::array<ir::Sampler::AxisTaps, kAxesMax> along;
    for (size_t axis = 0; axis < axes; ++axis)  // the grid names the last axis first
      along[axis] = sampler_.along(axis, static_cast<double>(at[axes - 1 - axis]));
    const int64_t each = static_cast<int64_t>(sampler_.taps_per_axis());
    for (int64_t t = 0; t < taps_; ++t) {
      int64_t rest = t, place = 0, step = 1;
      double weight = 1;
      for (size_t axis = axes; axis-- > 0; rest /= each) {
        const ir::Sampler::Tap& tap = along[axis][static_cast<size_t>(rest % each)];
        place += tap.position * step;
        step *= image_.extents[2 + axis];
        weight *= tap.weight;
      }
      places[t * kPoints + i] = static_cast<int32_t>(place);
      weights[t * kPoints + i] = static_cast<float>(weight);
    }
  }

  Operand image_;
  Operand grid_;
  Operand to_;
  ir::Sampler sampler_;
  int64_t taps_ = 1;
  int64_t plane_ = 1;
  int64_t points_ = 1;
  int width_;
  uint64_t scratch_ = 0;
};

}  // namespace

LoweredStep lower_grid_sample(Lowering& lowering) {
  const bool plain = lowering.inputs[0].dtype == ir::DType::kF32 &&
                     lowering.inputs[1].dtype == ir::DType::kF32 && lowering.outputs[0].elements() > 0;
  if (!plain) return reference_step(lowering);
  return std::unique_ptr<Step>(std::make_unique<GridSampleStep>(lowering));
}

}  // namespace heddle::host
