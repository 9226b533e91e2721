#include "drivers/host/onednn/bf16_linear.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "drivers/host/machine/aligned_bytes.h"
#include "drivers/host/onednn/descriptors.h"
#include "drivers/host/onednn/half_dots.h"
#include "drivers/host/onednn/pieces.h"
#include "drivers/host/onednn/primitive.h"

namespace heddle::host {
namespace {

using MatmulDesc = dnnl::matmul::primitive_desc;

class Bf16LinearStep final : public Step {
 public:
  Bf16LinearStep(const FewRows& problem, int width)
      : p_(problem), by_dots_(p_.trans_w && p_.m <= kMostRowsOfBf16Dots && has_bf16_dots()) {
    if (width > 1 && 2 * p_.m * p_.k * p_.n >= kWorthSharing) {
      const int64_t lines = (p_.n + width * kCacheLine - 1) / (width * kCacheLine);
      columns_ = lines * kCacheLine;
    }
    columns_ = std::min(columns_, p_.n);
  }

  Status prepare(const Engine& engine) {
    if (by_dots_) return {};
    HEDDLE_TRY_ASSIGN(whole_, make(engine, p_.n));
    if (pieces() == 1) return {};
    HEDDLE_TRY_ASSIGN(piece_, make(engine, columns_));
    HEDDLE_TRY_ASSIGN(last_, make(engine, p_.n - (pieces() - 1) * columns_));
    return {};
  }

  Status run(const RunContext& context) const override {
    if (pieces() == 1 || context.caller.share() == 1)
      return run_columns(context, {whole_.get(), 0, p_.n, context.arena + scratch_});
    return for_each_piece(context, static_cast<size_t>(pieces()), "a matrix product", [&](size_t i) {
      const bool is_last = i + 1 == static_cast<size_t>(pieces());
      const int64_t first = static_cast<int64_t>(i) * columns_;
      return run_columns(context, {(is_last ? last_ : piece_).get(), first, is_last ? p_.n - first : columns_,
                                   context.arena + scratch_ + i * piece_scratch_bytes()});
    });
  }

  uint64_t scratch_bytes() const override {
    if (by_dots_) return 0;
    const uint64_t shared = pieces() == 1 ? 0 : piece_scratch_bytes() * static_cast<uint64_t>(pieces());
    return std::max(whole_->scratch_bytes(), shared);
  }
  void set_scratch(uint64_t offset) override { scratch_ = offset; }
  uint64_t resident_bytes() const override {
    return 512 + (by_dots_ ? 0 : pieces() == 1 ? 1 : 3) * Primitive::kResidentBytes;
  }
  std::string path() const override {
    return text(by_dots_ ? "sums of rows" : whole_->implementation(), ", bf16 weight as it lies",
                pieces() == 1 ? "" : text(" in ", pieces(), " pieces"));
  }

 private:
  static constexpr int64_t kCacheLine = 16;  // floats

  struct Columns {
    const Primitive* primitive;  // null: by dots
    int64_t first, count;
    std::byte* scratch;
  };

  int64_t pieces() const { return (p_.n + columns_ - 1) / columns_; }
  uint64_t piece_scratch_bytes() const {
    return by_dots_ ? 0 : aligned(std::max(piece_->scratch_bytes(), last_->scratch_bytes()));
  }

  Result<Ref<const Primitive>> make(const Engine& engine, int64_t columns) const {
    using Type = dnnl::memory::data_type;
    const Dims w_strides = p_.trans_w ? Dims{1, p_.k} : Dims{p_.n, 1};
    const dnnl::memory::desc x({p_.m, p_.k}, Type::bf16, Dims{p_.k, 1}),
        w({p_.k, columns}, Type::bf16, w_strides), bias = f32_desc({1, columns}),
                                                   y = f32_desc({p_.m, columns}, {p_.n, 1});
    const bool has_bias = p_.bias.present();
    HEDDLE_TRY_ASSIGN(const MatmulDesc desc, caught("preparing a matrix product", [&] {
                        return has_bias ? MatmulDesc(engine.cpu, x, w, bias, y, engine.attributes())
                                        : MatmulDesc(engine.cpu, x, w, y, engine.attributes());
                      }));
    std::vector<Primitive::Argument> arguments = {
        {DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DST, y}};
    if (has_bias) arguments.push_back({DNNL_ARG_BIAS, bias});
    return Primitive::make<MatmulDesc, dnnl::matmul>(engine, desc, std::move(arguments));
  }

  Status run_columns(const RunContext& context, const Columns& columns) const {
    const uint16_t* const w = context.read<uint16_t>(p_.w) + columns.first * (p_.trans_w ? p_.k : 1);
    const float* const bias = p_.bias.present() ? context.read<float>(p_.bias) + columns.first : nullptr;
    float* const y = context.write<float>(p_.y) + columns.first;
    if (columns.primitive == nullptr) {
      bf16_dots({p_.m, p_.k, columns.count, context.read<uint16_t>(p_.x), w, bias, y, p_.n});
      return {};
    }
    std::array<const void*, 5> addresses = {context.read(p_.x), w, y};
    size_t count = 3;
    if (bias != nullptr) addresses[count++] = bias;
    addresses[count++] = columns.scratch;
    return columns.primitive->run(std::span(addresses).first(count));
  }

  const FewRows p_;
  const bool by_dots_;
  int64_t columns_ = INT64_MAX;  // of a piece
  Ref<const Primitive> whole_, piece_, last_;
  uint64_t scratch_ = 0;
};

}  // namespace

Result<std::unique_ptr<Step>> bf16_linear_step(const Engine& engine, const FewRows& problem, int width) {
  auto step = std::make_unique<Bf16LinearStep>(problem, width);
  HEDDLE_TRY(step->prepare(engine));
  return std::unique_ptr<Step>(std::move(step));
}

}  // namespace heddle::host
