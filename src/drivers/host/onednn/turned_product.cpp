#include "drivers/host/onednn/turned_product.h"

#include <algorithm>
#include <utility>

#include "drivers/host/onednn/pieces.h"

namespace heddle::host {
namespace {

class TurnedProductStep final : public Step {
 public:
  TurnedProductStep(const FewRows& problem, int width)
      : p_(problem), alone_{problem.n, std::min(kPanel, problem.n)}, shared_(alone_) {
    if (width == 1 || 2 * p_.m * p_.k * p_.n < kWorthSharing) return;
    const int64_t lines = (p_.n + width * kCacheLine - 1) / (width * kCacheLine);
    shared_.columns = std::min(alone_.columns, lines * kCacheLine);
    shared_.tasks = std::min<int64_t>(shared_.panels(), kTasksPerCore * width);
    width_ = width;
  }

  // False: oneDNN has no kernel of its own for it.
  Result<bool> prepare(const Engine& engine) {
    HEDDLE_TRY_ASSIGN(panels_,
                      TurnedPanels::make(engine, p_.m, p_.k,
                                         {alone_.columns, alone_.last(), shared_.columns, shared_.last()}));
    return panels_ != nullptr;
  }

  Status run(const RunContext& context) const override {
    const auto* const x = context.read<float>(p_.x);
    auto* const turned = reinterpret_cast<float*>(context.arena + scratch_);
    panels_->turn_x(context, width_, x, turned);
    if (shared_.tasks == 1 || context.caller.share() == 1)
      return run_panels(context, alone_, 0, alone_.panels(), 0);
    return for_each_piece(context, static_cast<size_t>(shared_.tasks), "a matrix product", [&](size_t i) {
      const auto task = static_cast<int64_t>(i);
      return run_panels(context, shared_, shared_.panels() * task / shared_.tasks,
                        shared_.panels() * (task + 1) / shared_.tasks, task);
    });
  }

  uint64_t scratch_bytes() const override {
    return panels_->x_bytes() +
           std::max(panels_->scratch_bytes(alone_.columns),
                    panels_->scratch_bytes(shared_.columns) * static_cast<uint64_t>(shared_.tasks));
  }
  void set_scratch(uint64_t offset) override { scratch_ = offset; }
  uint64_t resident_bytes() const override { return 512 + panels_->primitives() * Primitive::kResidentBytes; }
  std::string path() const override {
    return text("turned, ", panels_->implementation(),
                shared_.tasks == 1 ? "" : text(" by ", shared_.tasks, " tasks"));
  }

 private:
  static constexpr int64_t kPanel = 128;     // rows of the weight: their y' stays in the core's cache
  static constexpr int64_t kCacheLine = 16;  // floats
  static constexpr int64_t kTasksPerCore = 2;

  // Of the weight's rows, which are y's columns. A task is some panels, one after the other.
  struct Cut {
    int64_t n, columns;
    int64_t tasks = 1;
    int64_t panels() const { return (n + columns - 1) / columns; }
    int64_t last() const { return n - (panels() - 1) * columns; }
  };

  Status run_panels(const RunContext& context, const Cut& cut, int64_t first, int64_t last,
                    int64_t task) const {
    std::byte* const x = context.arena + scratch_;
    std::byte* const scratch =
        x + panels_->x_bytes() + static_cast<uint64_t>(task) * panels_->scratch_bytes(cut.columns);
    for (int64_t column = first * cut.columns; column < std::min(last * cut.columns, p_.n);
         column += cut.columns) {
      const float* const bias = p_.bias.present() ? context.read<float>(p_.bias) + column : nullptr;
      HEDDLE_TRY(panels_->run(std::min(cut.columns, p_.n - column), reinterpret_cast<const float*>(x),
                              context.read<float>(p_.w) + column * p_.k, bias,
                              context.write<float>(p_.y) + column, p_.n, scratch));
    }
    return {};
  }

  FewRows p_;
  Cut alone_;      // for a caller that no thread helps
  Cut shared_;     // one task: not worth sharing
  int width_ = 1;  // threads that share it
  std::unique_ptr<const TurnedPanels> panels_;
  uint64_t scratch_ = 0;
};

}  // namespace

Result<std::unique_ptr<Step>> turned_product_step(const Engine& engine, const FewRows& problem, int width) {
  auto step = std::make_unique<TurnedProductStep>(problem, width);
  HEDDLE_TRY_ASSIGN(const bool is_fast, step->prepare(engine));
  return is_fast ? std::unique_ptr<Step>(std::move(step)) : std::unique_ptr<Step>();
}

}  // namespace heddle::host
