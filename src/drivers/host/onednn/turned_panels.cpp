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

constexpr int64_t kTurnedTile = 4;
constexpr int64_t kTurnedLine = 16;                 // floats of a cache line
constexpr int64_t kWorthTurningTogether = 1 << 15;  // elements of x
constexpr float kNoBias = -0.0f;                    // adds nothing, to -0 neither

using Four = float __attribute__((vector_size(16)));

Four four_at(const float* from) {
  Four values;
  std::memcpy(&values, from, sizeof values);
  return values;
}

void turn_tile(const float* from, int64_t from_stride, Four bias, float* to, int64_t to_stride) {
  const Four a = four_at(from), b = four_at(from + from_stride), c = four_at(from + 2 * from_stride),
             d = four_at(from + 3 * from_stride);
  const Four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Four ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Four cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Four cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  const std::array<Four, kTurnedTile> turned = {__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5) + bias,
                                                __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7) + bias,
                                                __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5) + bias,
                                                __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7) + bias};
  for (size_t i = 0; i < turned.size(); ++i)
    std::memcpy(to + static_cast<int64_t>(i) * to_stride, &turned[i], sizeof turned[i]);
}

}  // namespace

void turn(const float* from, int64_t from_stride, int64_t rows, int64_t columns, const float* bias, float* to,
          int64_t to_stride) {
  const int64_t whole_rows = rows / kTurnedTile * kTurnedTile,
                whole_columns = columns / kTurnedTile * kTurnedTile;
  const auto one = [&](int64_t row, int64_t column) {
    to[column * to_stride + row] = from[row * from_stride + column] + (bias == nullptr ? kNoBias : bias[row]);
  };
  // A line of `to` is written whole: further lines would take its place in the cache.
  for (int64_t first = 0; first < whole_rows; first += kTurnedLine) {
    const int64_t end = std::min(first + kTurnedLine, whole_rows);
    for (int64_t column = 0; column < whole_columns; column += kTurnedTile) {
      for (int64_t row = first; row < end; row += kTurnedTile) {
        const Four its = bias == nullptr ? Four{kNoBias, kNoBias, kNoBias, kNoBias} : four_at(bias + row);
        turn_tile(from + row * from_stride + column, from_stride, its, to + column * to_stride + row,
                  to_stride);
      }
    }
  }
  for (int64_t column = 0; column < columns; ++column) {
    for (int64_t row = column < whole_columns ? whole_rows : 0; row < rows; ++row) one(row, column);
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

void TurnedPanels::turn_x(const RunContext& context, int width, const float* x, float* turned) const {
  const auto turn_columns = [&](int64_t first, int64_t last) {
    turn(x + first, k_, m_, last - first, nullptr, turned + first * m_, m_);
  };
  const auto turners = static_cast<int>(std::min<int64_t>(width, k_ / kTurnedLine));
  if (turners < 2 || m_ * k_ < kWorthTurningTogether || context.caller.share() == 1)
    return turn_columns(0, k_);
  const int64_t lines = (k_ + kTurnedLine - 1) / kTurnedLine;
  context.caller.for_each(turners, [&](int i) {
    turn_columns(lines * i / turners * kTurnedLine, std::min(lines * (i + 1) / turners * kTurnedLine, k_));
  });
}

Status TurnedPanels::run(int64_t columns, const float* turned_x, const float* w, const float* bias, float* y,
                         int64_t y_stride, std::byte* scratch) const {
  const std::array<const void*, 4> addresses = {w, turned_x, scratch, scratch + y_bytes(columns)};
  HEDDLE_TRY(std::ranges::find(kinds_, columns, &Kind::columns)->primitive->run(addresses));
  turn(reinterpret_cast<const float*>(scratch), m_, columns, m_, bias, y, y_stride);
  return {};
}

}  // namespace heddle::host
