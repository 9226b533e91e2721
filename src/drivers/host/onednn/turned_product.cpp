#include "drivers/host/onednn/turned_product.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "drivers/host/machine/aligned_bytes.h"
#include "drivers/host/onednn/descriptors.h"
#include "drivers/host/onednn/division.h"
#include "drivers/host/onednn/pieces.h"
#include "drivers/host/onednn/primitive.h"

namespace heddle::host {
namespace {

using MatmulDesc = dnnl::matmul::primitive_desc;

constexpr int64_t kPanel = 128;     // rows of the weight: their y' stays in the core's cache
constexpr int64_t kCacheLine = 16;  // floats
constexpr int64_t kTasksPerCore = 2;
constexpr int64_t kWorthTurningTogether = 1 << 15;  // elements of x
constexpr int64_t kTile = 4;
constexpr float kNoBias = -0.0f;  // adds nothing, to -0 neither

using Four = float __attribute__((vector_size(16)));

Four load(const float* from) {
  Four values;
  std::memcpy(&values, from, sizeof values);
  return values;
}

void turn_tile(const float* from, int64_t from_stride, Four bias, float* to, int64_t to_stride) {
  const Four a = load(from), b = load(from + from_stride), c = load(from + 2 * from_stride),
             d = load(from + 3 * from_stride);
  const Four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Four ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Four cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Four cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  const std::array<Four, kTile> turned = {__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5) + bias,
                                          __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7) + bias,
                                          __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5) + bias,
                                          __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7) + bias};
  for (size_t i = 0; i < turned.size(); ++i)
    std::memcpy(to + static_cast<int64_t>(i) * to_stride, &turned[i], sizeof turned[i]);
}

class TurnedProductStep final : public Step {
 public:
  // Null: oneDNN has no brgemm for it.
  static Result<std::unique_ptr<Step>> make(const Engine& engine, const FewRows& problem, int width) {
    auto step = std::make_unique<TurnedProductStep>(problem, width);
    for (const Cut& cut : {step->alone_, step->shared_}) {
      for (const int64_t columns : {cut.columns, cut.last()}) {
        HEDDLE_TRY_ASSIGN(const bool fast, step->prepare(engine, columns));
        if (!fast) return std::unique_ptr<Step>();
      }
    }
    return std::unique_ptr<Step>(std::move(step));
  }

  TurnedProductStep(const FewRows& problem, int width)
      : p_(problem), alone_{problem.n, std::min(kPanel, problem.n)}, shared_(alone_) {
    if (width == 1 || 2 * p_.m * p_.k * p_.n < kWorthSharing) return;
    const int64_t lines = (p_.n + width * kCacheLine - 1) / (width * kCacheLine);
    shared_.columns = std::min(alone_.columns, lines * kCacheLine);
    shared_.tasks = std::min<int64_t>(shared_.panels(), kTasksPerCore * width);
    if (p_.m * p_.k >= kWorthTurningTogether) turners_ = std::min<int64_t>(width, p_.k / kCacheLine);
  }

  Status run(const RunContext& context) const override {
    if (shared_.tasks == 1 || context.caller.share() == 1) {
      turn_x(context, 0, p_.k);
      return run_panels(context, alone_, 0, alone_.panels(), 0);
    }
    const int64_t lines = (p_.k + kCacheLine - 1) / kCacheLine;
    context.caller.for_each(static_cast<int>(turners_), [&](int i) {
      turn_x(context, lines * i / turners_ * kCacheLine,
             std::min(lines * (i + 1) / turners_ * kCacheLine, p_.k));
    });
    return for_each_piece(context, static_cast<size_t>(shared_.tasks), "a matrix product", [&](size_t i) {
      const auto task = static_cast<int64_t>(i);
      return run_panels(context, shared_, shared_.panels() * task / shared_.tasks,
                        shared_.panels() * (task + 1) / shared_.tasks, task);
    });
  }

  uint64_t scratch_bytes() const override {
    return turned_bytes() + std::max(task_bytes(alone_), task_bytes(shared_) * tasks_of(shared_));
  }
  void set_scratch(uint64_t offset) override { scratch_ = offset; }
  uint64_t resident_bytes() const override { return 512 + kinds_.size() * Primitive::kResidentBytes; }
  std::string path() const override {
    return text("turned, ", kinds_.front().primitive->implementation(),
                shared_.tasks == 1 ? "" : text(" by ", shared_.tasks, " tasks"));
  }

 private:
  // Of the weight's rows, which are y's columns. A task is some panels, one after the other.
  struct Cut {
    int64_t n, columns;
    int64_t tasks = 1;
    int64_t panels() const { return (n + columns - 1) / columns; }
    int64_t last() const { return n - (panels() - 1) * columns; }
  };
  struct Kind {
    int64_t columns;
    Ref<const Primitive> primitive;
  };

  static uint64_t tasks_of(const Cut& cut) { return static_cast<uint64_t>(cut.tasks); }
  uint64_t turned_bytes() const { return aligned(static_cast<uint64_t>(p_.m * p_.k) * sizeof(float)); }
  uint64_t panel_bytes(const Cut& cut) const {
    return aligned(static_cast<uint64_t>(p_.m * cut.columns) * sizeof(float));
  }
  uint64_t task_bytes(const Cut& cut) const { return panel_bytes(cut) + aligned(primitive_bytes_); }

  Result<bool> prepare(const Engine& engine, int64_t columns) {
    for (const Kind& each : kinds_) {
      if (each.columns == columns) return true;
    }
    HEDDLE_TRY_ASSIGN(const MatmulDesc desc, caught("preparing a matrix product", [&] {
                        return MatmulDesc(engine.cpu, f32_desc({columns, p_.k}), f32_desc({p_.k, p_.m}),
                                          f32_desc({columns, p_.m}), engine.attributes());
                      }));
    if (!std::string_view(desc.impl_info_str()).starts_with("brg")) return false;
    HEDDLE_TRY_ASSIGN(auto primitive,
                      (Primitive::make<MatmulDesc, dnnl::matmul>(engine, desc,
                                                                 {{DNNL_ARG_SRC, desc.src_desc()},
                                                                  {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                                                                  {DNNL_ARG_DST, desc.dst_desc()}})));
    primitive_bytes_ = std::max(primitive_bytes_, primitive->scratch_bytes());
    kinds_.push_back({columns, std::move(primitive)});
    return true;
  }

  void turn_x(const RunContext& context, int64_t first, int64_t last) const {
    turn(context.read<float>(p_.x) + first, p_.k, p_.m, last - first, nullptr,
         reinterpret_cast<float*>(context.arena + scratch_) + first * p_.m, p_.m);
  }

  Status run_panels(const RunContext& context, const Cut& cut, int64_t first, int64_t last,
                    int64_t task) const {
    const std::byte* const x = context.arena + scratch_;
    std::byte* const y =
        context.arena + scratch_ + turned_bytes() + static_cast<uint64_t>(task) * task_bytes(cut);
    const float* const bias = p_.bias.present() ? context.read<float>(p_.bias) : nullptr;
    for (int64_t column = first * cut.columns; column < std::min(last * cut.columns, p_.n);
         column += cut.columns) {
      const int64_t columns = std::min(cut.columns, p_.n - column);
      const auto kind = std::ranges::find(kinds_, columns, &Kind::columns);
      const std::array<const void*, 4> addresses = {context.read<float>(p_.w) + column * p_.k, x, y,
                                                    y + panel_bytes(cut)};
      HEDDLE_TRY(kind->primitive->run(addresses));
      turn(reinterpret_cast<const float*>(y), p_.m, columns, p_.m, bias == nullptr ? nullptr : bias + column,
           context.write<float>(p_.y) + column, p_.n);
    }
    return {};
  }

  FewRows p_;
  Cut alone_;   // for a caller that no thread helps
  Cut shared_;  // one task: not worth sharing
  int64_t turners_ = 1;
  std::vector<Kind> kinds_;
  uint64_t primitive_bytes_ = 0;
  uint64_t scratch_ = 0;
};

}  // namespace

void turn(const float* from, int64_t from_stride, int64_t rows, int64_t columns, const float* bias, float* to,
          int64_t to_stride) {
  int64_t row = 0;
  for (; row + kTile <= rows; row += kTile) {
    const float* const s = from + row * from_stride;
    const Four its = bias == nullptr ? Four{kNoBias, kNoBias, kNoBias, kNoBias} : load(bias + row);
    int64_t column = 0;
    for (; column + kTile <= columns; column += kTile)
      turn_tile(s + column, from_stride, its, to + column * to_stride + row, to_stride);
    for (; column < columns; ++column) {
      for (int64_t i = 0; i < kTile; ++i)
        to[column * to_stride + row + i] = s[i * from_stride + column] + its[i];
    }
  }
  for (; row < rows; ++row) {
    const float its = bias == nullptr ? kNoBias : bias[row];
    for (int64_t column = 0; column < columns; ++column)
      to[column * to_stride + row] = from[row * from_stride + column] + its;
  }
}

Result<std::unique_ptr<Step>> turned_product_step(const Engine& engine, const FewRows& problem, int width) {
  return TurnedProductStep::make(engine, problem, width);
}

}  // namespace heddle::host
