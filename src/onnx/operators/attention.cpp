#include "onnx/operators/attention.h"

#include <string_view>
#include <vector>

namespace heddle::onnx {
namespace {

using ir::Attributes;
using ir::ValueId;

const std::vector<int64_t> kSwapHeads = {0, 2, 1, 3};

Status refuse_extras(Call& call) {
  static constexpr std::string_view kInputs[] = {"past_key", "past_value", "nonpad_kv_seqlen"};
  for (size_t i = 0; i < std::size(kInputs); ++i) {
    if (call.has(4 + i)) return call.unsupported("input ", kInputs[i], " is not supported; leave it out");
  }
  HEDDLE_TRY_ASSIGN(const double cap, call.take_f64("softcap", 0.0));
  if (cap != 0.0) return call.unsupported("softcap ", cap, " is not supported; it must be 0");
  for (const std::string_view window : {"left_window_size", "right_window_size"}) {
    HEDDLE_TRY_ASSIGN(const int64_t size, call.take_i64(window, -1));
    if (size >= 0) return call.unsupported(window, " ", size, " is not supported; it must be -1");
  }
  // The scores are no output here, and the softmax is computed in f32 or better.
  call.attributes().erase("qk_matmul_output_mode");
  call.attributes().erase("softmax_precision");
  return {};
}

Result<int64_t> static_dim(Call& call, size_t input, size_t axis, std::string_view what) {
  HEDDLE_TRY_ASSIGN(const ir::TensorType type, call.type(input));
  if (!type.shape[axis].is_static())
    return call.unsupported("the ", what, " must be known; input ", input, " is ", type);
  return type.shape[axis].value();
}

// [batch, heads, sequence, size] -> [batch, sequence, heads * size]
Result<ValueId> merge_heads(Call& call, size_t input, int64_t heads, std::string_view purpose) {
  HEDDLE_TRY_ASSIGN(const int64_t size, static_dim(call, input, 3, "head size"));
  const ValueId shape = call.constant(ir::Tensor::of_i64({0, 0, heads * size}), text(purpose, "_shape"));
  HEDDLE_TRY_ASSIGN(const ValueId rows, call.add("Transpose", {call.input(input)}, {{"perm", kSwapHeads}},
                                                 text(purpose, "_rows")));
  return call.add("Reshape", {rows, shape}, {}, purpose);
}

struct Heads {
  int64_t query;
  int64_t key;
};

Result<Heads> take_heads(Call& call, size_t rank) {
  Heads heads{};
  HEDDLE_TRY_ASSIGN(heads.query, call.take_i64("q_num_heads", 0));
  HEDDLE_TRY_ASSIGN(heads.key, call.take_i64("kv_num_heads", 0));
  if (rank == 4) {
    HEDDLE_TRY_ASSIGN(heads.query, static_dim(call, 0, 1, "number of heads"));
    HEDDLE_TRY_ASSIGN(heads.key, static_dim(call, 1, 1, "number of heads"));
  }
  if (heads.query <= 0 || heads.key <= 0 || heads.query % heads.key != 0) {
    return call.invalid("there are ", heads.query, " query heads and ", heads.key,
                        " key heads; the first must be a multiple of the second, both above 0");
  }
  return heads;
}

}  // namespace

Status convert_attention(Call& call) {
  HEDDLE_TRY(refuse_extras(call));
  HEDDLE_TRY_ASSIGN(const ir::TensorType q, call.type(0));
  const size_t rank = q.rank();
  for (size_t i = 1; i < 3; ++i) {
    HEDDLE_TRY_ASSIGN(const ir::TensorType other, call.type(i));
    if (other.rank() != rank) return call.invalid("queries are ", q, " but input ", i, " is ", other);
  }
  if (rank != 3 && rank != 4) return call.invalid("queries are ", q, "; they must have rank 3 or 4");
  HEDDLE_TRY_ASSIGN(const Heads heads, take_heads(call, rank));
  HEDDLE_TRY_ASSIGN(const double scale, call.take_f64("scale", -1.0));
  if (scale == 0.0) return call.unsupported("scale 0 is not supported; it must be another number");
  HEDDLE_TRY_ASSIGN(const int64_t causal, call.take_i64("is_causal", 0));

  Attributes& attributes = call.attributes();
  attributes.set("num_heads", heads.query);
  attributes.set("kv_heads", heads.key);
  attributes.set("scale", scale < 0 ? 0.0 : scale);
  attributes.set("causal", int64_t{causal != 0});
  std::vector<ValueId> inputs = {call.input(0), call.input(1), call.input(2)};
  if (rank == 4) {
    HEDDLE_TRY_ASSIGN(inputs[0], merge_heads(call, 0, heads.query, "query"));
    HEDDLE_TRY_ASSIGN(inputs[1], merge_heads(call, 1, heads.key, "key"));
    HEDDLE_TRY_ASSIGN(inputs[2], merge_heads(call, 2, heads.key, "value"));
  }
  if (call.has(3)) inputs.push_back(call.input(3));
  if (rank == 3) return call.emit("Attention", std::move(inputs), attributes);
  HEDDLE_TRY_ASSIGN(const int64_t size, static_dim(call, 2, 3, "head size"));
  const ValueId shape = call.constant(ir::Tensor::of_i64({0, 0, heads.query, size}), "split_shape");
  HEDDLE_TRY_ASSIGN(const ValueId flat, call.add("Attention", std::move(inputs), attributes, "flat"));
  HEDDLE_TRY_ASSIGN(const ValueId split, call.add("Reshape", {flat, shape}, {}, "split"));
  return call.emit("Transpose", {split}, {{"perm", kSwapHeads}});
}

}  // namespace heddle::onnx
