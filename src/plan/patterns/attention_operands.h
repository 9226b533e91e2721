// attention_operands.h: where the heads of q, k and v lie in the tensors they were cut from.
//
//   What       Exporters reach [batch, heads, positions, size] by many ways; trace() tells where each element
//              came from. Attention takes [batch, positions, heads * size]: what the projections made before
//              anything was moved.
//   Threads    Pure.
#pragma once

#include <optional>
#include <string>

#include "plan/patterns/movement.h"

namespace heddle::plan {

struct Heads {
  ir::ValueId source = ir::kNoValue;
  // Axes of the source. Batch and positions may share one; an axis of extent 1 may be nowhere.
  std::optional<size_t> batch_axis;
  std::optional<size_t> position_axis;
  int64_t base = 0;  // first feature, along the last axis
  int64_t heads = 1;
  int64_t repeat = 1;    // query heads that share one of these
  bool by_head = false;  // the source is [batch, heads, positions, size]
  int64_t size = 1;
  ir::Dim batch;
  ir::Dim positions;
  double scale = 1;
};

struct HeadsOptions {
  bool transposed;  // [.., size, positions], as the second factor of q k' is
  bool scales;      // may be multiplied by constants on the way
};

// `id` is [batch, heads, ...] or [batch * heads, ...].
std::optional<Heads> heads_of(const Rewriter& rewriter, ir::ValueId id, HeadsOptions options);
bool fit_together(const Heads& q, const Heads& k, const Heads& v);
// The three lie side by side in one tensor and fill it.
bool packed(const Rewriter& rewriter, const Heads& q, const Heads& k, const Heads& v);

// [batch, positions, features]: all that the source holds; own_rows_of cuts out the features of these heads.
Result<ir::ValueId> rows_of(Rewriter& rewriter, const Heads& heads, const std::string& name);
Result<ir::ValueId> own_rows_of(Rewriter& rewriter, const Heads& heads, const std::string& name);

}  // namespace heddle::plan
