#include "drivers/host/onednn/turned_panels.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "drivers/host/machine/aligned_bytes.h"
#include "drivers/host/onednn/descriptors.h"

namespace heddle::host {
namespace {

using MatmulDesc = dnnl::matmul::primitive_desc;

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

Result<std::unique_ptr<const TurnedPanels>> TurnedPanels::make(const Engine& engine, int64_t m, int64_t k,
                                                               const std::vector<int64_t>& columns) {
  std::unique_ptr<TurnedPanels> panels(new TurnedPanels(m, k));
  for (const int64_t each : columns) {
    HEDDLE_TRY_ASSIGN(const bool is_fast, panels->prepare(engine, each));
    if (!is_fast) return std::unique_ptr<const TurnedPanels>();
  }
  return std::unique_ptr<const TurnedPanels>(std::move(panels));
}

Result<bool> TurnedPanels::prepare(const Engine& engine, int64_t columns) {
  if (std::ranges::find(kinds_, columns, &Kind::columns) != kinds_.end()) return true;
  HEDDLE_TRY_ASSIGN(const MatmulDesc desc, caught("preparing a matrix product", [&] {
                      return MatmulDesc(engine.cpu, f32_desc({columns, k_}), f32_desc({k_, m_}),
                                        f32_desc({columns, m_}), engine.attributes());
                    }));
  if (!std::string_view(desc.impl_info_str()).starts_with("brg")) return false;
  HEDDLE_TRY_ASSIGN(auto primitive,
                    (Primitive::make<MatmulDesc, dnnl::matmul>(engine, desc,
                                                               {{DNNL_ARG_SRC, desc.src_desc()},
                                                                {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                                                                {DNNL_ARG_DST, desc.dst_desc()}})));
  kinds_.push_back({columns, std::move(primitive)});
  return true;
}

uint64_t TurnedPanels::x_bytes() const { return aligned(static_cast<uint64_t>(m_ * k_) * sizeof(float)); }
uint64_t TurnedPanels::y_bytes(int64_t columns) const {
  return aligned(static_cast<uint64_t>(m_ * columns) * sizeof(float));
}
uint64_t TurnedPanels::scratch_bytes(int64_t columns) const {
  uint64_t most = 0;
  for (const Kind& each : kinds_) most = std::max(most, aligned(each.primitive->scratch_bytes()));
  return y_bytes(columns) + most;
}

void TurnedPanels::turn_x(const float* x, float* turned, int64_t first, int64_t last) const {
  turn(x + first, k_, m_, last - first, nullptr, turned + first * m_, m_);
}

Status TurnedPanels::run(int64_t columns, const float* turned_x, const float* w, const float* bias, float* y,
                         int64_t y_stride, std::byte* scratch) const {
  const std::array<const void*, 4> addresses = {w, turned_x, scratch, scratch + y_bytes(columns)};
  HEDDLE_TRY(std::ranges::find(kinds_, columns, &Kind::columns)->primitive->run(addresses));
  turn(reinterpret_cast<const float*>(scratch), m_, columns, m_, bias, y, y_stride);
  return {};
}

}  // namespace heddle::host
