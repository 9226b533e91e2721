// Not oneDNN's: that one loses NaN, and makes no indices.
#include <algorithm>
#include <array>
#include <limits>

#include "drivers/host/kernels/elementwise/chunks.h"
#include "drivers/host/kernels/elementwise/half.h"
#include "drivers/host/onednn/channels.h"
#include "drivers/host/onednn/conv.h"
#include "drivers/host/onednn/float_steps.h"
#include "ir/window.h"

namespace heddle::host {
namespace {

constexpr size_t kAxes = 3;  // spatial; the first are 1 long where there are fewer

struct Windows {
  using Sizes = std::array<int64_t, kAxes>;
  int64_t channels = 0;
  Sizes x{1, 1, 1}, y{1, 1, 1}, kernel{1, 1, 1}, strides{1, 1, 1}, dilations{1, 1, 1}, begin{0, 0, 0};

  int64_t x_positions() const { return x[0] * x[1] * x[2]; }
  int64_t y_positions() const { return y[0] * y[1] * y[2]; }
};

// best = the greater one of each channel, or NaN.
template <class T, class Widen>
HEDDLE_INLINE void raise(const T* x, T* best, int64_t channels, Widen widen) {
  for (int64_t c = 0; c < channels; ++c) {
    const auto value = widen(x[c]);
    best[c] = value > widen(best[c]) || value != value ? x[c] : best[c];
  }
}
HEDDLE_VECTORISED void raise_f32(const float* x, float* best, int64_t channels) {
  raise(x, best, channels, [](float v) { return v; });
}
HEDDLE_VECTORISED void raise_bf16(const uint16_t* x, uint16_t* best, int64_t channels) {
  raise(x, best, channels, from_bf16);
}
void raise_to(const float* x, float* best, int64_t channels) { raise_f32(x, best, channels); }
void raise_to(const uint16_t* x, uint16_t* best, int64_t channels) { raise_bf16(x, best, channels); }

float lowest(float /*type*/) { return -std::numeric_limits<float>::infinity(); }
uint16_t lowest(uint16_t /*type*/) { return to_bf16(lowest(float())); }

// Calls visit(position in x) for each of a window that lies inside, in order.
template <class Visit>
void each_position(const Windows& w, const Windows::Sizes& at, Visit&& visit) {
  const auto inside = [&](size_t axis, int64_t tap, int64_t& position) {
    position = at[axis] * w.strides[axis] + tap * w.dilations[axis] - w.begin[axis];
    return position >= 0 && position < w.x[axis];
  };
  int64_t i = 0, j = 0, k = 0;
  for (int64_t a = 0; a < w.kernel[0]; ++a) {
    if (!inside(0, a, i)) continue;
    for (int64_t b = 0; b < w.kernel[1]; ++b) {
      if (!inside(1, b, j)) continue;
      for (int64_t c = 0; c < w.kernel[2]; ++c) {
        if (inside(2, c, k)) visit((i * w.x[1] + j) * w.x[2] + k);
      }
    }
  }
}

// One position of the output, all channels.
template <class T>
void pool_position(const Windows& w, const Windows::Sizes& at, const T* x, T* y) {
  bool first = true;
  each_position(w, at, [&](int64_t position) {
    const T* from = x + position * w.channels;
    first ? static_cast<void>(std::copy_n(from, w.channels, y)) : raise_to(from, y, w.channels);
    first = false;
  });
  if (first) std::fill_n(y, w.channels, lowest(T()));
}

// The same for one channel, with the position that won; -1: none.
int64_t find_position(const Windows& w, const Windows::Sizes& at, const float* x) {
  int64_t best = -1;
  each_position(w, at, [&](int64_t position) {
    const float value = x[position * w.channels];
    if (best < 0 || value > x[best * w.channels] || value != value) best = position;
  });
  return best;
}

// Channels last; the positions of all images are what the team shares.
class MaxPoolStep final : public Step {
 public:
  static Result<std::unique_ptr<Step>> make(const Lowering& lowering, const Windows& windows) {
    auto step = std::make_unique<MaxPoolStep>();
    const Engine& engine = lowering.weights.engine();
    step->w_ = windows;
    step->images_ = lowering.inputs[0].extents[0];
    step->width_ = lowering.width;
    HEDDLE_TRY_ASSIGN(step->x_, Turned::make(engine, lowering.inputs[0], Turned::Way::kInput, step->scratch_,
                                             lowering.width));
    HEDDLE_TRY_ASSIGN(step->y_, Turned::make(engine, lowering.outputs[0], Turned::Way::kOutput,
                                             step->scratch_, lowering.width));
    if (lowering.outputs.size() > 1) step->indices_ = lowering.outputs[1];
    return std::unique_ptr<Step>(std::move(step));
  }

  Status run(const RunContext& context) const override {
    HEDDLE_TRY(x_.run(context, base_));
    split(context.caller, images_ * w_.y_positions(), 1, work(), width_,
          [&](int64_t begin, int64_t end, int) {
            x_.narrow() ? pool<uint16_t>(context, begin, end) : pool<float>(context, begin, end);
            if (indices_.present()) note_indices(context, begin, end);
          });
    return y_.run(context, base_);
  }

  uint64_t scratch_bytes() const override { return scratch_; }
  void set_scratch(uint64_t offset) override { base_ = offset; }
  uint64_t resident_bytes() const override { return 512 + x_.resident_bytes() + y_.resident_bytes(); }

  Sharing sharing() const override {
    return sharing_of_split(images_ * w_.y_positions(), 1, work(), width_, "positions");
  }

 private:
  int64_t work() const {
    return images_ * w_.y_positions() * w_.channels * w_.kernel[0] * w_.kernel[1] * w_.kernel[2];
  }
  Windows::Sizes spot(int64_t position) const {
    return {position / (w_.y[1] * w_.y[2]), position / w_.y[2] % w_.y[1], position % w_.y[2]};
  }

  template <class T>
  void pool(const RunContext& context, int64_t begin, int64_t end) const {
    const T* x = reinterpret_cast<const T*>(x_.address(context, base_));
    T* y = reinterpret_cast<T*>(y_.address(context, base_));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t image = i / w_.y_positions();
      pool_position(w_, spot(i % w_.y_positions()), x + image * w_.x_positions() * w_.channels,
                    y + i * w_.channels);
    }
  }

  // Indices count in x as it is described: [N, C, spatial..], and lie so themselves.
  void note_indices(const RunContext& context, int64_t begin, int64_t end) const {
    const auto* x = reinterpret_cast<const float*>(x_.address(context, base_));
    auto* indices = context.write<int64_t>(indices_);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t image = i / w_.y_positions(), position = i % w_.y_positions();
      for (int64_t c = 0; c < w_.channels; ++c) {
        const int64_t plane = image * w_.channels + c;
        const int64_t best =
            find_position(w_, spot(position), x + image * w_.x_positions() * w_.channels + c);
        indices[plane * w_.y_positions() + position] = best < 0 ? best : plane * w_.x_positions() + best;
      }
    }
  }

  Windows w_;
  int64_t images_ = 0;
  int width_ = 1;
  Turned x_, y_;
  Operand indices_;
  uint64_t scratch_ = 0;
  uint64_t base_ = 0;
};

}  // namespace

Result<std::unique_ptr<Step>> lower_max_pool(Lowering& lowering) {
  const Operand &x = lowering.inputs[0], &y = lowering.outputs[0];
  const bool by_columns = lowering.outputs.size() > 1 && lowering.node.attributes.i64("storage_order") != 0;
  const size_t axes = x.extents.rank() - 2;
  if (axes > kAxes || by_columns) return reference_step(lowering);
  Windows w;
  w.channels = x.extents[1];
  const size_t lead = kAxes - axes;
  for (size_t i = 0; i < axes; ++i) {
    w.x[lead + i] = x.extents[2 + i];
    w.y[lead + i] = y.extents[2 + i];
  }
  if (lowering.node.is("GlobalMaxPool")) {
    w.kernel = w.x;
    return MaxPoolStep::make(lowering, w);
  }
  HEDDLE_TRY_ASSIGN(const ir::Window window, ir::Window::of(lowering.node, axes, {}));
  for (size_t i = 0; i < axes; ++i) {
    w.kernel[lead + i] = window.kernel[i];
    w.strides[lead + i] = window.strides[i];
    w.dilations[lead + i] = window.dilations[i];
    w.begin[lead + i] = window.pads(i, x.extents[2 + i]).first;
  }
  return MaxPoolStep::make(lowering, w);
}

}  // namespace heddle::host
