#include "drivers/host/onednn/grouped_product.h"

#include <algorithm>
#include <dnnl.hpp>

#include "drivers/host/kernels/elementwise/narrow.h"
#include "drivers/host/kernels/reference/reference_step.h"
#include "drivers/host/machine/aligned_bytes.h"
#include "drivers/host/onednn/engine.h"
#include "drivers/host/onednn/half_panel.h"
#include "drivers/host/onednn/pieces.h"
#include "drivers/host/onednn/weight_store.h"

namespace heddle::host {
namespace {

constexpr int64_t kFloatsOfPanel = 64 << 10;  // which the core's cache holds
constexpr int64_t kColumnsAtLeast = 16;
constexpr int64_t kTasksOfCore = 4;

class GroupedProductStep final : public Step {
 public:
  explicit GroupedProductStep(const Lowering& lowering)
      : a_(lowering.inputs[0]),
        b_(lowering.inputs[1]),
        ends_(lowering.inputs[2]),
        y_(lowering.outputs[0]),
        transposed_(lowering.node.attributes.i64("trans_b") != 0),
        exact_(lowering.weights.engine().exact),
        groups_(ends_.elements()),
        rows_(a_.extents[0]),
        depth_(a_.extents[1]),
        columns_(y_.extents[1]) {
    panel_ =
        std::min(std::max(kFloatsOfPanel / depth_ / kColumnsAtLeast, int64_t{1}) * kColumnsAtLeast, columns_);
    const bool is_shared = lowering.width > 1 && 2 * y_.elements() * depth_ >= kWorthSharing;
    tasks_ = is_shared ? std::min(units(), kTasksOfCore * lowering.width) : 1;
  }

  Status run(const RunContext& context) const override {
    int64_t* const bounds = find_bounds(context);
    const float* const x = half() ? widened(context) : context.read<float>(a_);
    float* const y = half() ? reinterpret_cast<float*>(scratch(context) + y_at()) : context.write<float>(y_);
    std::fill(y + bounds[groups_] * columns_, y + rows_ * columns_, 0.0f);
    const auto task = [&](int64_t index) -> Status {
      auto* const panel = reinterpret_cast<float*>(scratch(context) + panels_at() +
                                                   static_cast<uint64_t>(index) * panel_bytes());
      for (int64_t i = units() * index / tasks_; i < units() * (index + 1) / tasks_; ++i) {
        const int64_t group = i / panels(), begin = bounds[group], rows = bounds[group + 1] - begin;
        if (rows == 0) continue;
        HEDDLE_TRY(multiply(context, group, i % panels() * panel_, rows, x + begin * depth_,
                            y + begin * columns_, panel));
      }
      return {};
    };
    HEDDLE_TRY(tasks_ == 1 ? task(0)
                           : for_each_piece(context, static_cast<size_t>(tasks_), "a product of groups",
                                            [&](size_t i) { return task(static_cast<int64_t>(i)); }));
    if (half()) round(y, context.write<uint16_t>(y_));
    return {};
  }

  uint64_t scratch_bytes() const override {
    return panels_at() + panel_bytes() * static_cast<uint64_t>(half() ? tasks_ : 0);
  }
  void set_scratch(uint64_t offset) override { scratch_ = offset; }
  std::string path() const override {
    return text(half() && transposed_ && !exact_ ? "sums of few rows, else " : "", "oneDNN sgemm, ", groups_,
                " groups in ", panels(), " panels", tasks_ == 1 ? "" : text(" by ", tasks_, " tasks"));
  }

 private:
  bool half() const { return y_.dtype != ir::DType::kF32; }
  int64_t panels() const { return (columns_ + panel_ - 1) / panel_; }
  int64_t units() const { return groups_ * panels(); }

  // Of the scratch: bounds of the groups, then x and y as f32, then a panel for each task.
  std::byte* scratch(const RunContext& context) const { return context.arena + scratch_; }
  uint64_t x_at() const { return aligned(static_cast<uint64_t>(groups_ + 1) * sizeof(int64_t)); }
  uint64_t y_at() const { return x_at() + (half() ? floats(rows_ * depth_) : 0); }
  uint64_t panels_at() const { return y_at() + (half() ? floats(rows_ * columns_) : 0); }
  uint64_t panel_bytes() const { return floats(depth_ * panel_); }
  static uint64_t floats(int64_t count) { return aligned(static_cast<uint64_t>(count) * sizeof(float)); }

  // Group g has the rows from bounds[g] to bounds[g + 1].
  int64_t* find_bounds(const RunContext& context) const {
    auto* const bounds = reinterpret_cast<int64_t*>(scratch(context));
    bounds[0] = 0;
    for (int64_t g = 0; g < groups_; ++g) {
      const int64_t end =
          ends_.dtype == ir::DType::kI32 ? context.read<int32_t>(ends_)[g] : context.read<int64_t>(ends_)[g];
      bounds[g + 1] = std::clamp<int64_t>(end, 0, rows_);
    }
    std::sort(bounds, bounds + groups_ + 1);  // a row's group is the number of ends not beyond it
    return bounds;
  }

  const float* widened(const RunContext& context) const {
    auto* const x = reinterpret_cast<float*>(scratch(context) + x_at());
    half_to_f32(a_.dtype, context.read<uint16_t>(a_), x, rows_ * depth_);
    return x;
  }

  void round(const float* from, uint16_t* to) const {
    const auto convert = y_.dtype == ir::DType::kF16 ? f32_to_f16 : f32_to_bf16;
    convert(from, to, rows_ * columns_);
  }

  // The columns from `column` on, as many as a panel has.
  Status multiply(const RunContext& context, int64_t group, int64_t column, int64_t rows, const float* x,
                  float* y, float* panel) const {
    const int64_t columns = std::min(panel_, columns_ - column);
    const int64_t first = group * depth_ * columns_ + column * (transposed_ ? depth_ : 1);
    if (!half()) {
      return sgemm(rows, columns, x, context.read<float>(b_) + first, transposed_ ? depth_ : columns_,
                   y + column);
    }
    const uint16_t* const w = context.read<uint16_t>(b_) + first;
    if (transposed_ && !exact_ && rows <= kMostRowsOfDots) {  // a panel would be written and read for little
      few_rows_dots(b_.dtype, {rows, depth_, columns, x, w, nullptr, y + column, columns_});
      return {};
    }
    if (transposed_) {
      half_to_f32(b_.dtype, w, panel, columns * depth_);
    } else {
      for (int64_t i = 0; i < depth_; ++i)
        half_to_f32(b_.dtype, w + i * columns_, panel + i * columns, columns);
    }
    return sgemm(rows, columns, x, panel, transposed_ ? depth_ : columns, y + column);
  }

  Status sgemm(int64_t rows, int64_t columns, const float* x, const float* w, int64_t w_stride,
               float* y) const {
    const int64_t together = exact_ ? 1 : rows;
    for (int64_t row = 0; row < rows; row += together) {
      HEDDLE_TRY(
          onednn_status(dnnl_sgemm('N', transposed_ ? 'T' : 'N', together, columns, depth_, 1.0f,
                                   x + row * depth_, depth_, w, w_stride, 0.0f, y + row * columns_, columns_),
                        "a product of groups"));
    }
    return {};
  }

  const Operand a_, b_, ends_, y_;
  const bool transposed_;
  const bool exact_;
  const int64_t groups_, rows_, depth_, columns_;
  int64_t panel_;  // columns of one
  int64_t tasks_;  // a task is some panels, one after another in its part of the scratch
  uint64_t scratch_ = 0;
};

}  // namespace

Result<std::unique_ptr<Step>> lower_grouped_product(Lowering& lowering) {
  const bool reckons = lowering.outputs[0].elements() != 0 && lowering.inputs[0].elements() != 0;
  if (!reckons || lowering.outputs[0].dtype == ir::DType::kF64) return reference_step(lowering);
  return std::unique_ptr<Step>(std::make_unique<GroupedProductStep>(lowering));
}

}  // namespace heddle::host
