#include "onnx/operators/attention.h"

#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "onnx/operators/attention_mask.h"

namespace heddle::onnx {
namespace {

using ir::Attributes;
using ir::ValueId;

const std::vector<int64_t> kSwapHeads = {0, 2, 1, 3};

enum AttentionInput : size_t { kQuery, kKey, kValue, kMask, kPastKey, kPastValue, kSeen };
enum Output : size_t { kResult, kPresentKey, kPresentValue, kScores };

Result<int64_t> static_dim(Call& call, ValueId id, size_t axis, std::string_view what) {
  const ir::TensorType& type = call.value(id).type;
  if (!type.shape[axis].is_static())
    return call.unsupported("the ", what, " must be known; the operand is ", type);
  return type.shape[axis].value();
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
    HEDDLE_TRY_ASSIGN(heads.query, static_dim(call, call.input(kQuery), 1, "number of heads"));
    HEDDLE_TRY_ASSIGN(heads.key, static_dim(call, call.input(kKey), 1, "number of heads"));
  }
  if (heads.query <= 0 || heads.key <= 0 || heads.query % heads.key != 0) {
    return call.invalid("there are ", heads.query, " query heads and ", heads.key,
                        " key heads; the first must be a multiple of the second, both above 0");
  }
  return heads;
}

// One call, with the queries, keys and values as the file gives them. An operand is wanted flat, [batch,
// positions, heads * size], by the IR's Attention, and split, [batch, heads, positions, size], by caches.
class Attention {
 public:
  explicit Attention(Call& call) : call_(call) {}

  Status convert() {
    HEDDLE_TRY(read());
    HEDDLE_TRY(join_past());
    HEDDLE_TRY_ASSIGN(mask_, attention_mask(call_, mask_request()));
    return written_out() ? write_out() : fuse();
  }

 private:
  bool written_out() const { return softcap_ != 0 || call_.output_count() > kScores; }

  Status read() {
    HEDDLE_TRY_ASSIGN(const ir::TensorType q, call_.type(kQuery));
    rank_ = q.rank();
    for (size_t i = kKey; i <= kValue; ++i) {
      HEDDLE_TRY_ASSIGN(const ir::TensorType other, call_.type(i));
      if (other.rank() != rank_) return call_.invalid("queries are ", q, " but input ", i, " is ", other);
    }
    if (rank_ != 3 && rank_ != 4) return call_.invalid("queries are ", q, "; they must have rank 3 or 4");
    HEDDLE_TRY_ASSIGN(heads_, take_heads(call_, rank_));
    const bool scaled = call_.attributes().has("scale");
    HEDDLE_TRY_ASSIGN(scale_, call_.take_f64("scale", 0.0));
    if (scaled && scale_ == 0.0) {
      return call_.unsupported("scale 0 is not supported; it must be another number");
    }
    HEDDLE_TRY_ASSIGN(const int64_t causal, call_.take_i64("is_causal", 0));
    causal_ = causal != 0;
    HEDDLE_TRY_ASSIGN(softcap_, call_.take_f64("softcap", 0.0));
    HEDDLE_TRY_ASSIGN(scores_mode_, call_.take_i64("qk_matmul_output_mode", 0));
    HEDDLE_TRY_ASSIGN(left_, call_.take_i64("left_window_size", -1));
    HEDDLE_TRY_ASSIGN(right_, call_.take_i64("right_window_size", -1));
    call_.attributes().erase("softmax_precision");  // f32 or better, whatever it says
    if (call_.has(kPastKey) != call_.has(kPastValue)) {
      return call_.invalid("past_key and past_value must be given together");
    }
    if (call_.has(kPastKey) && call_.has(kSeen)) {
      return call_.invalid("nonpad_kv_seqlen cannot be given beside past_key");
    }
    key_ = call_.input(kKey);
    value_ = call_.input(kValue);
    return {};
  }

  Result<ValueId> split(ValueId flat, int64_t heads, std::string_view purpose) {
    HEDDLE_TRY_ASSIGN(const int64_t width, static_dim(call_, flat, 2, "width"));
    if (width % heads != 0) {
      return call_.invalid("the ", purpose, " are ", call_.value(flat).type, "; their last axis must hold ",
                           heads, " heads of one size");
    }
    const ValueId shape =
        call_.constant(ir::Tensor::of_i64({0, 0, heads, width / heads}), text(purpose, "_split_shape"));
    HEDDLE_TRY_ASSIGN(const ValueId rows,
                      call_.add("Reshape", {flat, shape}, {}, text(purpose, "_split_rows")));
    return call_.add("Transpose", {rows}, {{"perm", kSwapHeads}}, text(purpose, "_split"));
  }

  Result<ValueId> merge(ValueId split, int64_t heads, std::string_view purpose) {
    HEDDLE_TRY_ASSIGN(const int64_t size, static_dim(call_, split, 3, "head size"));
    const ValueId shape =
        call_.constant(ir::Tensor::of_i64({0, 0, heads * size}), text(purpose, "_merged_shape"));
    HEDDLE_TRY_ASSIGN(const ValueId rows,
                      call_.add("Transpose", {split}, {{"perm", kSwapHeads}}, text(purpose, "_merged_rows")));
    return call_.add("Reshape", {rows, shape}, {}, text(purpose, "_merged"));
  }

  // Keys and values as they are attended to; split when a cache is read or written.
  Status join_past() {
    const bool past = call_.has(kPastKey);
    split_ = rank_ == 4;
    if (!split_ && (past || call_.output_count() > kPresentKey || written_out())) {
      HEDDLE_TRY_ASSIGN(key_, split(key_, heads_.key, "key"));
      HEDDLE_TRY_ASSIGN(value_, split(value_, heads_.key, "value"));
      split_ = true;
    }
    if (past) {
      HEDDLE_TRY_ASSIGN(
          key_, call_.add("Concat", {call_.input(kPastKey), key_}, {{"axis", int64_t{2}}}, "present_key"));
      HEDDLE_TRY_ASSIGN(value_, call_.add("Concat", {call_.input(kPastValue), value_}, {{"axis", int64_t{2}}},
                                          "present_value"));
    }
    if (split_) {
      call_.bind(kPresentKey, key_);
      call_.bind(kPresentValue, value_);
    }
    return {};
  }

  MaskRequest mask_request() {
    MaskRequest request;
    request.mask = call_.input(kMask);
    request.queries = call_.input(kQuery);
    request.query_axis = rank_ == 4 ? 2 : 1;
    request.keys = key_;
    request.key_axis = split_ ? 2 : 1;
    request.past = call_.input(kPastKey);
    request.seen = call_.input(kSeen);
    // Without anything before the first query the IR's own causal mask says it.
    plainly_causal_ = causal_ && request.past == ir::kNoValue && request.seen == ir::kNoValue && left_ < 0 &&
                      right_ < 0 && !written_out();
    request.causal = causal_ && !plainly_causal_;
    request.left = left_;
    request.right = right_;
    return request;
  }

  Status fuse() {
    Attributes attributes = call_.attributes();
    attributes.set("num_heads", heads_.query);
    attributes.set("kv_heads", heads_.key);
    attributes.set("scale", scale_);
    attributes.set("causal", int64_t{plainly_causal_});
    std::vector<ValueId> inputs = {call_.input(kQuery), key_, value_};
    if (rank_ == 4) {
      HEDDLE_TRY_ASSIGN(inputs[0], merge(inputs[0], heads_.query, "query"));
    }
    if (split_) {
      HEDDLE_TRY_ASSIGN(inputs[1], merge(key_, heads_.key, "key"));
      HEDDLE_TRY_ASSIGN(inputs[2], merge(value_, heads_.key, "value"));
    }
    if (mask_ != ir::kNoValue) inputs.push_back(mask_);
    if (rank_ == 3) return call_.emit("Attention", std::move(inputs), std::move(attributes));
    HEDDLE_TRY_ASSIGN(const int64_t size, static_dim(call_, value_, 3, "head size"));
    const ValueId shape = call_.constant(ir::Tensor::of_i64({0, 0, heads_.query, size}), "split_shape");
    HEDDLE_TRY_ASSIGN(const ValueId flat,
                      call_.add("Attention", std::move(inputs), std::move(attributes), "flat"));
    HEDDLE_TRY_ASSIGN(const ValueId split, call_.add("Reshape", {flat, shape}, {}, "split"));
    return call_.emit("Transpose", {split}, {{"perm", kSwapHeads}});
  }

  // Each key head once for every query head that reads it.
  Result<ValueId> repeated(ValueId id, std::string_view purpose) {
    const int64_t times = heads_.query / heads_.key;
    if (times == 1) return id;
    HEDDLE_TRY_ASSIGN(const int64_t size, static_dim(call_, id, 3, "head size"));
    const ValueId axis = call_.constant(ir::Tensor::of_i64({2}), text(purpose, "_axis"));
    const ValueId wide = call_.constant(ir::Tensor::of_i64({1, 1, times, 1, 1}), text(purpose, "_times"));
    HEDDLE_TRY_ASSIGN(const ValueId one, call_.add("Unsqueeze", {id, axis}, {}, text(purpose, "_one")));
    HEDDLE_TRY_ASSIGN(const ValueId many, call_.add("Expand", {one, wide}, {}, text(purpose, "_many")));
    // [batch, key heads, times, positions, size] -> [batch, positions, query heads, size] and back: only the
    // extents that are known are named.
    const std::vector<int64_t> forth = {0, 3, 1, 2, 4};
    HEDDLE_TRY_ASSIGN(const ValueId rows,
                      call_.add("Transpose", {many}, {{"perm", forth}}, text(purpose, "_rows")));
    const ValueId shape =
        call_.constant(ir::Tensor::of_i64({0, 0, heads_.query, size}), text(purpose, "_shape"));
    HEDDLE_TRY_ASSIGN(const ValueId joined,
                      call_.add("Reshape", {rows, shape}, {}, text(purpose, "_joined")));
    return call_.add("Transpose", {joined}, {{"perm", kSwapHeads}}, text(purpose, "_repeated"));
  }

  Status write_out() {
    const ir::DType dtype = call_.value(call_.input(kQuery)).type.dtype;
    ValueId query = call_.input(kQuery);
    if (rank_ == 3) {
      HEDDLE_TRY_ASSIGN(query, split(query, heads_.query, "query"));
    }
    HEDDLE_TRY_ASSIGN(const ValueId key, repeated(key_, "keys"));
    HEDDLE_TRY_ASSIGN(const ValueId value, repeated(value_, "values"));
    HEDDLE_TRY_ASSIGN(const int64_t size, static_dim(call_, query, 3, "head size"));
    const double scale = scale_ != 0 ? scale_ : 1 / std::sqrt(static_cast<double>(size));
    const std::vector<int64_t> turned = {0, 1, 3, 2};
    HEDDLE_TRY_ASSIGN(const ValueId keys, call_.add("Transpose", {key}, {{"perm", turned}}, "keys_turned"));
    HEDDLE_TRY_ASSIGN(const ValueId products, call_.add("MatMul", {query, keys}, {}, "products"));
    HEDDLE_TRY_ASSIGN(ValueId scores,
                      call_.add("Mul", {products, call_.scalar(dtype, scale, "scale")}, {}, "scores"));
    if (scores_mode_ == 0) call_.bind(kScores, scores);
    if (softcap_ != 0) {
      const ValueId cap = call_.scalar(dtype, softcap_, "softcap");
      HEDDLE_TRY_ASSIGN(const ValueId small, call_.add("Div", {scores, cap}, {}, "small"));
      HEDDLE_TRY_ASSIGN(const ValueId bent, call_.add("Tanh", {small}, {}, "bent"));
      HEDDLE_TRY_ASSIGN(scores, call_.add("Mul", {bent, cap}, {}, "capped"));
    }
    if (scores_mode_ == 1) call_.bind(kScores, scores);
    HEDDLE_TRY_ASSIGN(const ValueId weights, weights_of(scores, dtype));
    if (scores_mode_ == 3) call_.bind(kScores, weights);
    if (rank_ == 4) return call_.emit("MatMul", {weights, value}, call_.attributes());
    HEDDLE_TRY_ASSIGN(const ValueId split, call_.add("MatMul", {weights, value}, {}, "split_result"));
    HEDDLE_TRY_ASSIGN(const ValueId merged, merge(split, heads_.query, "result"));
    return call_.emit("Identity", {merged}, call_.attributes());
  }

  // Softmax of the masked scores; a row that may attend to nothing gives zeros.
  Result<ValueId> weights_of(ValueId scores, ir::DType dtype) {
    const Attributes last = {{"axis", int64_t{-1}}};
    if (mask_ == ir::kNoValue) {
      if (scores_mode_ == 2) call_.bind(kScores, scores);
      return call_.add("Softmax", {scores}, last, "weights");
    }
    const ValueId never = call_.scalar(dtype, -std::numeric_limits<double>::infinity(), "never");
    const ValueId zero = call_.scalar(dtype, 0, "zero");
    ValueId masked = ir::kNoValue, bias = mask_;
    if (call_.value(mask_).type.dtype == ir::DType::kBool) {
      HEDDLE_TRY_ASSIGN(bias, call_.add("Where", {mask_, zero, never}, {}, "bias"));
    }
    HEDDLE_TRY_ASSIGN(masked, call_.add("Add", {scores, bias}, {}, "masked"));
    if (scores_mode_ == 2) call_.bind(kScores, masked);
    HEDDLE_TRY_ASSIGN(const ValueId plain, call_.add("Softmax", {masked}, last, "plain_weights"));
    const ValueId axis = call_.constant(ir::Tensor::of_i64({-1}), "last_axis");
    HEDDLE_TRY_ASSIGN(const ValueId most,
                      call_.add("ReduceMax", {bias, axis}, {{"keepdims", int64_t{1}}}, "most"));
    HEDDLE_TRY_ASSIGN(const ValueId nothing, call_.add("Equal", {most, never}, {}, "nothing"));
    return call_.add("Where", {nothing, zero, plain}, {}, "weights");
  }

  Call& call_;
  size_t rank_ = 0;
  Heads heads_{};
  double scale_ = 0;  // 0: by the size of a head
  double softcap_ = 0;
  int64_t scores_mode_ = 0;
  int64_t left_ = -1, right_ = -1;
  bool causal_ = false;
  bool plainly_causal_ = false;
  bool split_ = false;
  ValueId key_ = ir::kNoValue, value_ = ir::kNoValue, mask_ = ir::kNoValue;
};

}  // namespace

Status convert_attention(Call& call) { return Attention(call).convert(); }

}  // namespace heddle::onnx
