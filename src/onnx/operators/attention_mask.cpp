#include "onnx/operators/attention_mask.h"

#include <limits>
#include <string>
#include <vector>

namespace heddle::onnx {
namespace {

using ir::DType;
using ir::ValueId;

class Mask {
 public:
  Mask(Call& call, const MaskRequest& request) : call_(call), r_(request) {}

  Result<ValueId> make() {
    HEDDLE_TRY_ASSIGN(const ValueId given, given_mask());
    HEDDLE_TRY_ASSIGN(const ValueId allowed, allowed_positions());
    if (allowed == ir::kNoValue) return given;
    if (given == ir::kNoValue) return allowed;
    const DType dtype = call_.value(given).type.dtype;
    if (dtype == DType::kBool) return call_.add("And", {given, allowed}, {}, "mask");
    const ValueId never = call_.scalar(dtype, -std::numeric_limits<double>::infinity(), "mask_never");
    return call_.add("Where", {allowed, given, never}, {}, "mask");
  }

 private:
  ValueId integer(int64_t number, std::string_view purpose) {
    return call_.constant(ir::Tensor::of_i64({number}).reshaped({}), purpose);
  }
  Result<ValueId> length(ValueId of, size_t axis, std::string_view purpose) {
    HEDDLE_TRY_ASSIGN(const ValueId shape, call_.add("Shape", {of}, {}, text(purpose, "_shape")));
    return call_.add("Gather", {shape, integer(static_cast<int64_t>(axis), text(purpose, "_axis"))}, {},
                     purpose);
  }
  Result<ValueId> shaped(ValueId id, const std::vector<int64_t>& axes, std::string_view purpose) {
    const ValueId where = call_.constant(ir::Tensor::of_i64(axes), text(purpose, "_axes"));
    return call_.add("Unsqueeze", {id, where}, {}, purpose);
  }

  // Keys beyond the end of the file's mask are forbidden.
  Result<ValueId> given_mask() {
    if (r_.mask == ir::kNoValue) return r_.mask;
    const ir::TensorType type = call_.value(r_.mask).type;
    const ir::Dim& keys = call_.value(r_.keys).type.shape[r_.key_axis];
    if (type.rank() == 0) return call_.invalid("the mask is ", type, "; it must have an axis of keys");
    const ir::Dim& last = type.shape.back();
    if (last == keys || (!last.is_static() && r_.seen == ir::kNoValue) || !keys.is_static()) return r_.mask;
    if (!last.is_static()) {
      return call_.unsupported("the mask is ", type, " for ", keys, " keys; its last axis must be known");
    }
    if (last.value() > keys.value()) {
      return call_.invalid("the mask is ", type, " for ", keys, " keys; it must not be longer");
    }
    std::vector<int64_t> pads(2 * type.rank(), 0);
    pads.back() = keys.value() - last.value();
    const ValueId amounts = call_.constant(ir::Tensor::of_i64(pads), "mask_pads");
    const bool flags = type.dtype == DType::kBool;
    const ValueId fill =
        call_.scalar(type.dtype, flags ? 0 : -std::numeric_limits<double>::infinity(), "mask_fill");
    return call_.add("Pad", {r_.mask, amounts, fill}, {{"mode", std::string("constant")}}, "mask_padded");
  }

  Result<ValueId> positions(ValueId count, std::string_view purpose) {
    return call_.add("Range",
                     {integer(0, text(purpose, "_first")), count, integer(1, text(purpose, "_step"))}, {},
                     purpose);
  }

  // [batch, 1, 1, 1], or a scalar.
  Result<ValueId> seen_keys() {
    ValueId seen = r_.seen;
    if (call_.value(seen).type.dtype != DType::kI64) {
      HEDDLE_TRY_ASSIGN(seen, call_.add("Cast", {seen}, {{"to", std::string("i64")}}, "seen"));
    }
    return shaped(seen, {1, 2, 3}, "seen_keys");
  }

  // Where each query stands: [queries, 1], with the batch before it when the offset depends on the example.
  Result<ValueId> query_positions() {
    HEDDLE_TRY_ASSIGN(const ValueId count, length(r_.queries, r_.query_axis, "query_count"));
    HEDDLE_TRY_ASSIGN(const ValueId from_zero, positions(count, "query_range"));
    HEDDLE_TRY_ASSIGN(const ValueId column, shaped(from_zero, {1}, "query_column"));
    if (r_.past != ir::kNoValue) {
      HEDDLE_TRY_ASSIGN(const ValueId offset, length(r_.past, 2, "past_count"));
      return call_.add("Add", {column, offset}, {}, "query_positions");
    }
    if (r_.seen == ir::kNoValue) return column;
    HEDDLE_TRY_ASSIGN(const ValueId seen, seen_keys());
    HEDDLE_TRY_ASSIGN(const ValueId offset, call_.add("Sub", {seen, count}, {}, "offset"));
    return call_.add("Add", {column, offset}, {}, "query_positions");
  }

  Result<ValueId> both(ValueId a, ValueId b, std::string_view purpose) {
    if (a == ir::kNoValue) return b;
    return call_.add("And", {a, b}, {}, purpose);
  }

  Result<ValueId> bounded(ValueId allowed, ValueId query, ValueId key) {
    // Causality is a window that ends at the query.
    const int64_t right = r_.causal ? (r_.right < 0 ? 0 : std::min<int64_t>(r_.right, 0)) : r_.right;
    if (right >= 0) {
      HEDDLE_TRY_ASSIGN(const ValueId end, call_.add("Add", {query, integer(right, "right")}, {}, "end"));
      HEDDLE_TRY_ASSIGN(const ValueId before, call_.add("LessOrEqual", {key, end}, {}, "before_end"));
      HEDDLE_TRY_ASSIGN(allowed, both(allowed, before, "ended"));
    }
    if (r_.left >= 0) {
      HEDDLE_TRY_ASSIGN(const ValueId begin,
                        call_.add("Sub", {query, integer(r_.left, "left")}, {}, "begin"));
      HEDDLE_TRY_ASSIGN(const ValueId after, call_.add("GreaterOrEqual", {key, begin}, {}, "after_begin"));
      HEDDLE_TRY_ASSIGN(allowed, both(allowed, after, "begun"));
    }
    return allowed;
  }

  Result<ValueId> allowed_positions() {
    const bool windowed = r_.causal || r_.left >= 0 || r_.right >= 0;
    if (!windowed && r_.seen == ir::kNoValue) return ir::kNoValue;
    HEDDLE_TRY_ASSIGN(const ValueId count, length(r_.keys, r_.key_axis, "key_count"));
    HEDDLE_TRY_ASSIGN(const ValueId keys, positions(count, "key_range"));
    HEDDLE_TRY_ASSIGN(const ValueId key, shaped(keys, {0}, "key_positions"));
    ValueId allowed = ir::kNoValue;
    if (r_.seen != ir::kNoValue) {
      HEDDLE_TRY_ASSIGN(const ValueId seen, seen_keys());
      HEDDLE_TRY_ASSIGN(allowed, call_.add("Less", {key, seen}, {}, "not_padding"));
    }
    if (!windowed) return allowed;
    HEDDLE_TRY_ASSIGN(const ValueId query, query_positions());
    return bounded(allowed, query, key);
  }

  Call& call_;
  const MaskRequest& r_;
};

}  // namespace

Result<ir::ValueId> attention_mask(Call& call, const MaskRequest& request) {
  return Mask(call, request).make();
}

}  // namespace heddle::onnx
