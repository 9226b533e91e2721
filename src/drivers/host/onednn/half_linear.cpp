#include "drivers/host/onednn/half_linear.h"

#include <algorithm>
#include <dnnl.hpp>

#include "drivers/host/kernels/elementwise/narrow.h"
#include "drivers/host/machine/aligned_bytes.h"
#include "drivers/host/onednn/engine.h"
#include "drivers/host/onednn/half_dots.h"
#include "drivers/host/onednn/half_panel.h"
#include "drivers/host/onednn/pieces.h"
#include "drivers/host/onednn/turned_panels.h"

namespace heddle::host {
namespace {

class HalfLinearStep final : public Step {
 public:
  HalfLinearStep(const FewRows& problem, int width)
      : p_(problem),
        has_dots_(has_half_dots()),
        sums_rows_(p_.trans_w && p_.m <= (has_dots_ ? kMostRowsOfHalfDots : kMostRowsOfDots)) {
    const bool is_shared = width > 1 && 2 * p_.m * p_.k * p_.n >= kWorthSharing;
    columns_ = std::max(kPanelFloats / p_.k / kFewestColumns, int64_t{1}) * kFewestColumns;
    if (is_shared) columns_ = std::min(columns_, whole_lines((p_.n + width - 1) / width));
    if (is_shared) width_ = width;
    columns_ = std::min(columns_, p_.n);
    tasks_ = is_shared ? std::min<int64_t>(panels(), kTasksPerCore * width) : 1;
  }

  Status prepare(const Engine& engine) {
    if (!p_.trans_w || sums_rows_ || p_.m <= kMostFewRows || p_.m > kMostTurnedHalfRows) return {};
    HEDDLE_TRY_ASSIGN(turned_,
                      TurnedPanels::make(engine, p_.m, p_.k, {columns_, p_.n - (panels() - 1) * columns_}));
    return {};
  }

  Status run(const RunContext& context) const override {
    if (turned_ != nullptr) {
      turned_->turn_x(context, width_, context.read<float>(p_.x),
                      reinterpret_cast<float*>(context.arena + scratch_));
    }
    if (tasks_ == 1) return run_task(context, 0);
    return for_each_piece(context, static_cast<size_t>(tasks_), "a matrix product",
                          [&](size_t i) { return run_task(context, static_cast<int64_t>(i)); });
  }

  uint64_t scratch_bytes() const override { return x_bytes() + task_bytes() * static_cast<uint64_t>(tasks_); }
  void set_scratch(uint64_t offset) override { scratch_ = offset; }
  std::string path() const override {
    const std::string how = turned_ != nullptr ? text("turned, ", turned_->implementation(), ", ")
                            : sums_rows_       ? "sums of rows, "
                                               : "oneDNN sgemm, ";
    return text(how, p_.w.half.value(), " weight in ", panels(), " panels",
                tasks_ == 1 ? "" : text(" by ", tasks_, " tasks"));
  }

 private:
  static constexpr int64_t kPanelFloats = 64 << 10;
  static constexpr int64_t kFewestColumns = 16;
  static constexpr int64_t kTasksPerCore = 2;
  static constexpr int64_t kMostTurnedHalfRows = 512;  // a panel has too few columns for sgemm

  static int64_t whole_lines(int64_t columns) {
    return (columns + kFewestColumns - 1) / kFewestColumns * kFewestColumns;
  }
  int64_t panels() const { return (p_.n + columns_ - 1) / columns_; }
  uint64_t panel_bytes() const {
    return sums_rows_ ? 0 : aligned(static_cast<uint64_t>(p_.k * columns_) * sizeof(float));
  }

  uint64_t x_bytes() const { return turned_ == nullptr ? 0 : turned_->x_bytes(); }
  uint64_t task_bytes() const {
    return panel_bytes() + (turned_ == nullptr ? 0 : turned_->scratch_bytes(columns_));
  }

  Status run_task(const RunContext& context, int64_t task) const {
    auto* const panel = reinterpret_cast<float*>(context.arena + scratch_ + x_bytes() +
                                                 static_cast<uint64_t>(task) * task_bytes());
    for (int64_t i = panels() * task / tasks_; i < panels() * (task + 1) / tasks_; ++i)
      HEDDLE_TRY(run_panel(context, i * columns_, panel));
    return {};
  }

  Status run_panel(const RunContext& context, int64_t column, float* panel) const {
    const int64_t columns = std::min(columns_, p_.n - column);
    const uint16_t* const w = context.read<uint16_t>(p_.w);
    float* const y = context.write<float>(p_.y) + column;
    const float* const bias = p_.bias.present() ? context.read<float>(p_.bias) + column : nullptr;
    if (sums_rows_) {
      const HalfDots<float> dots = {p_.m, p_.k, columns, context.read<float>(p_.x), w + column * p_.k,
                                    bias, y,    p_.n};
      has_dots_ ? half_dots(*p_.w.half, dots) : few_rows_dots(*p_.w.half, dots);
      return {};
    }
    if (turned_ != nullptr) {
      half_to_f32(*p_.w.half, w + column * p_.k, panel, columns * p_.k);
      return turned_->run(columns, reinterpret_cast<const float*>(context.arena + scratch_), panel, bias, y,
                          p_.n, reinterpret_cast<std::byte*>(panel) + panel_bytes());
    }
    if (p_.trans_w) {
      half_to_f32(*p_.w.half, w + column * p_.k, panel, columns * p_.k);
    } else {
      for (int64_t row = 0; row < p_.k; ++row)
        half_to_f32(*p_.w.half, w + row * p_.n + column, panel + row * columns, columns);
    }
    for (int64_t row = 0; bias != nullptr && row < p_.m; ++row) std::copy_n(bias, columns, y + row * p_.n);
    const dnnl_status_t status =
        dnnl_sgemm('N', p_.trans_w ? 'T' : 'N', p_.m, columns, p_.k, 1.0f, context.read<float>(p_.x), p_.k,
                   panel, p_.trans_w ? p_.k : columns, bias != nullptr ? 1.0f : 0.0f, y, p_.n);
    return onednn_status(status, "a product with a weight of sixteen bits");
  }

  const FewRows p_;
  const bool has_dots_;
  const bool sums_rows_;  // of a few rows the panel's f32 form would be written and read for little
  int64_t columns_;       // of a panel
  int width_ = 1;         // threads that share it
  int64_t tasks_;         // a task is some panels, one after another in its part of the scratch
  std::unique_ptr<const TurnedPanels> turned_;  // null: sgemm, or sums
  uint64_t scratch_ = 0;
};

}  // namespace

Result<std::unique_ptr<Step>> half_linear_step(const Engine& engine, const FewRows& problem, int width) {
  auto step = std::make_unique<HalfLinearStep>(problem, width);
  HEDDLE_TRY(step->prepare(engine));
  return std::unique_ptr<Step>(std::move(step));
}

}  // namespace heddle::host
