// Operators whose outputs are views of one operand: copied through strides, transposes in tiles.
#include <algorithm>
#include <optional>

#include "drivers/host/kernels/elementwise/chunks.h"
#include "drivers/host/kernels/movement/movement.h"
#include "drivers/host/kernels/movement/planes.h"

namespace heddle::host {

namespace {

class ViewStep final : public Step {
 public:
  ViewStep(const Lowering& lowering, std::vector<Strided> views)
      : from_(lowering.inputs[0]),
        to_(lowering.outputs),
        views_(std::move(views)),
        size_(ir::size_of(from_.dtype)),
        width_(lowering.width) {
    for (const Strided& view : views_) planes_.push_back(Planes::of(view));
  }

  Status run(const RunContext& context) const override {
    const std::byte* from = context.read(from_);
    for (size_t i = 0; i < to_.size(); ++i) {
      const int64_t count = to_[i].elements();
      std::byte* to = context.write(to_[i]);
      if (count == 0) continue;
      if (planes_[i].has_value()) {
        split(context.caller, planes_[i]->strips(), 1, count, width_,
              [&](int64_t begin, int64_t end, int) { planes_[i]->run(from, to, size_, begin, end); });
      } else {
        split(context.caller, count, kGrain, count, width_, [&](int64_t begin, int64_t end, int) {
          views_[i].copy(from, begin, end - begin, size_, to + begin * size_);
        });
      }
    }
    return {};
  }

  Sharing sharing() const override {
    size_t largest = 0;
    for (size_t i = 1; i < to_.size(); ++i)
      if (to_[i].elements() > to_[largest].elements()) largest = i;
    const int64_t count = to_[largest].elements();
    const auto& planes = planes_[largest];
    return planes.has_value() ? sharing_of_split(planes->strips(), 1, count, width_, "strips")
                              : sharing_of_split(count, kGrain, count, width_, "elements");
  }

 private:
  static constexpr int64_t kGrain = 1024;
  Operand from_;
  std::vector<Operand> to_;
  std::vector<Strided> views_;
  std::vector<std::optional<Planes>> planes_;
  int64_t size_;
  int width_;
};

std::unique_ptr<Step> view_step(const Lowering& lowering, Strided view) {
  return std::make_unique<ViewStep>(lowering, std::vector<Strided>{view});
}

}  // namespace

LoweredStep lower_transpose(Lowering& lowering) {
  const ir::Extents& in = lowering.inputs[0].extents;
  const ir::Extents& out = lowering.outputs[0].extents;
  const std::vector<int64_t> perm = lowering.node.attributes.ints("perm");
  const auto own = row_major(in);
  std::array<int64_t, ir::kMaxRank> strides{};
  for (size_t i = 0; i < in.rank(); ++i) {
    const int64_t axis = perm.empty() ? static_cast<int64_t>(in.rank() - 1 - i) : perm[i];
    strides[i] = own[static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(in.rank()) : axis)];
  }
  return view_step(lowering, Strided::make(out.span(), strides));
}

LoweredStep lower_slice(Lowering& lowering) {
  const ir::Extents& in = lowering.inputs[0].extents;
  HEDDLE_TRY_ASSIGN(const std::vector<int64_t> starts, numbers_of(lowering, 1, "starts"));
  std::vector<int64_t> axes, steps(starts.size(), 1);
  for (size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  if (lowering.node.has_input(3)) {
    HEDDLE_TRY_ASSIGN(axes, numbers_of(lowering, 3, "axes"));
  }
  if (lowering.node.has_input(4)) {
    HEDDLE_TRY_ASSIGN(steps, numbers_of(lowering, 4, "steps"));
  }
  auto strides = row_major(in);
  const auto own = strides;
  int64_t start = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    HEDDLE_TRY_ASSIGN(const size_t axis, ir::normalize_axis(axes[i], in.rank()));
    const int64_t extent = in[axis];
    // The least and greatest i64 mean "to the end": no sum is formed with them.
    const int64_t first = starts[i] < 0 ? std::max(starts[i], -extent) + extent : std::min(starts[i], extent);
    start +=
        std::clamp<int64_t>(first, 0, steps[i] > 0 ? extent : std::max<int64_t>(extent - 1, 0)) * own[axis];
    strides[axis] = own[axis] * ir::step_within(steps[i], extent);
  }
  return view_step(lowering, Strided::make(lowering.outputs[0].extents.span(), strides, start));
}

LoweredStep lower_expand(Lowering& lowering) {
  return view_step(lowering, Strided::broadcast(lowering.inputs[0].extents, lowering.outputs[0].extents));
}

LoweredStep lower_tile(Lowering& lowering) {
  const ir::Extents& in = lowering.inputs[0].extents;
  const auto own = row_major(in);
  std::vector<int64_t> extents, strides;
  for (size_t axis = 0; axis < in.rank(); ++axis) {
    extents.push_back(in[axis] == 0 ? 0 : lowering.outputs[0].extents[axis] / in[axis]);
    strides.push_back(0);
    extents.push_back(in[axis]);
    strides.push_back(own[axis]);
  }
  return view_step(lowering, Strided::make(extents, strides));
}

LoweredStep lower_split(Lowering& lowering) {
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(lowering, 0));
  const auto own = row_major(lowering.inputs[0].extents);
  std::vector<Strided> views;
  int64_t start = 0;
  for (const Operand& part : lowering.outputs) {
    views.push_back(Strided::make(part.extents.span(), own, start));
    start += part.extents[axis] * own[axis];
  }
  return std::unique_ptr<Step>(std::make_unique<ViewStep>(lowering, std::move(views)));
}

}  // namespace heddle::host
