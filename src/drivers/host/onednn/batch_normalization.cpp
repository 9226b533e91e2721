#include <algorithm>
#include <cmath>

#include "drivers/host/onednn/conv.h"

namespace heddle::host {
namespace {

// y = (x - mean) * factor + b with factor = scale / sqrt(var + epsilon), per channel (axis 1). Convolutions
// before it have taken it in.
class BatchNormalizationStep final : public Step {
 public:
  explicit BatchNormalizationStep(const Lowering& lowering)
      : x_(lowering.inputs[0]),
        scale_(lowering.inputs[1]),
        b_(lowering.inputs[2]),
        mean_(lowering.inputs[3]),
        var_(lowering.inputs[4]),
        y_(lowering.outputs[0]),
        epsilon_(lowering.node.attributes.f64("epsilon", 1e-5)) {
    channels_ = x_.extents[1];
    for (size_t i = 2; i < x_.extents.rank(); ++i) plane_ *= x_.extents[i];
    width_ = lowering.width;
    chunks_ = x_.elements() >= (1 << 15) ? lowering.width : 1;
  }

  Status run(const RunContext& context) const override {
    auto* factor = reinterpret_cast<float*>(context.arena + scratch_);
    const auto *scale = context.read<float>(scale_), *var = context.read<float>(var_);
    for (int64_t c = 0; c < channels_; ++c) {
      factor[c] = static_cast<float>(scale[c] / std::sqrt(static_cast<double>(var[c]) + epsilon_));
    }
    context.caller.for_each(chunks_, [&](int chunk) {
      const int64_t planes = x_.extents[0] * channels_;
      if (plane_ == 1) {
        normalize_rows(context, factor, x_.extents[0] * chunk / chunks_,
                       x_.extents[0] * (chunk + 1) / chunks_);
      } else {
        normalize_planes(context, factor, planes * chunk / chunks_, planes * (chunk + 1) / chunks_);
      }
    });
    return {};
  }

  uint64_t scratch_bytes() const override { return static_cast<uint64_t>(channels_) * sizeof(float); }
  void set_scratch(uint64_t offset) override { scratch_ = offset; }
  Sharing sharing() const override {
    const int64_t images = x_.extents[0], parts = plane_ == 1 ? images : images * channels_;
    if (width_ == 1) return {};
    if (chunks_ == 1 || parts < 2) return Sharing::whole();
    const int64_t largest = (parts + chunks_ - 1) / chunks_;
    const double balance = static_cast<double>(parts) / static_cast<double>(largest * chunks_);
    const int64_t pieces = std::min<int64_t>(parts, chunks_);
    return Sharing::divided(pieces, balance, text(pieces, " pieces of the planes"), width_);
  }

 private:
  void normalize_planes(const RunContext& context, const float* factor, int64_t first, int64_t last) const {
    const auto *mean = context.read<float>(mean_), *b = context.read<float>(b_);
    for (int64_t p = first; p < last; ++p) {
      const int64_t c = p % channels_;
      const float m = mean[c], f = factor[c], shift = b[c];
      const float* x = context.read<float>(x_) + p * plane_;
      float* y = context.write<float>(y_) + p * plane_;
      for (int64_t i = 0; i < plane_; ++i) y[i] = (x[i] - m) * f + shift;
    }
  }
  void normalize_rows(const RunContext& context, const float* factor, int64_t first, int64_t last) const {
    const auto *mean = context.read<float>(mean_), *b = context.read<float>(b_);
    for (int64_t n = first; n < last; ++n) {
      const float* x = context.read<float>(x_) + n * channels_;
      float* y = context.write<float>(y_) + n * channels_;
      for (int64_t c = 0; c < channels_; ++c) y[c] = (x[c] - mean[c]) * factor[c] + b[c];
    }
  }

  Operand x_, scale_, b_, mean_, var_, y_;
  double epsilon_;
  int64_t channels_ = 0;
  int64_t plane_ = 1;
  int chunks_ = 1;
  int width_ = 1;
  uint64_t scratch_ = 0;
};

}  // namespace

Result<std::unique_ptr<Step>> lower_batch_normalization(Lowering& lowering) {
  return std::unique_ptr<Step>(std::make_unique<BatchNormalizationStep>(lowering));
}

}  // namespace heddle::host
