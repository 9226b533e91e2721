// attention_mask.h: what a query may attend to, as one mask operand.
//
//   What       attention_mask() joins the mask of the file with causality, a sliding window and padded keys.
//              Query i stands at position offset + i; the offset is the number of keys before the first
//              query: the length of the cache, or `seen` (per example) less the number of queries.
//   Threads    Pure functions; any thread.
#pragma once

#include "onnx/call.h"

namespace heddle::onnx {

struct MaskRequest {
  ir::ValueId mask = ir::kNoValue;  // bool, or added to the scores; may be shorter than the keys
  ir::ValueId queries = ir::kNoValue;
  size_t query_axis = 1;
  ir::ValueId keys = ir::kNoValue;
  size_t key_axis = 1;
  ir::ValueId past = ir::kNoValue;  // [batch, heads, positions, size]
  ir::ValueId seen = ir::kNoValue;  // [batch]: keys that are no padding
  bool causal = false;
  int64_t left = -1, right = -1;  // -1: no bound
};

// kNoValue when nothing is forbidden.
Result<ir::ValueId> attention_mask(Call& call, const MaskRequest& request);

}  // namespace heddle::onnx
