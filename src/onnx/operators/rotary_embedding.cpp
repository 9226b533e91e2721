#include <string_view>
#include <vector>

#include "onnx/operators/attention.h"

namespace heddle::onnx {
namespace {

using ir::ValueId;

const std::vector<int64_t> kSwapHeads = {0, 2, 1, 3};

class Rotary {
 public:
  explicit Rotary(Call& call) : call_(call) {}

  Status convert() {
    HEDDLE_TRY(read());
    HEDDLE_TRY_ASSIGN(const ValueId x, by_position());
    HEDDLE_TRY_ASSIGN(const ValueId cosine, factors(1, "cosine"));
    HEDDLE_TRY_ASSIGN(const ValueId sine, factors(2, "sine"));
    HEDDLE_TRY_ASSIGN(ValueId rotated, rotate(x, cosine, sine));
    if (turned_ < size_) {
      HEDDLE_TRY_ASSIGN(const ValueId rest, cut(x, turned_, size_, 1, "rest"));
      HEDDLE_TRY_ASSIGN(rotated, call_.add("Concat", {rotated, rest}, {{"axis", int64_t{3}}}, "whole"));
    }
    if (rank_ == 4) return call_.emit("Transpose", {rotated}, {{"perm", kSwapHeads}});
    const ValueId shape = call_.constant(ir::Tensor::of_i64({0, 0, heads_ * size_}), "flat_shape");
    return call_.emit("Reshape", {rotated, shape}, call_.attributes());
  }

 private:
  Status read() {
    HEDDLE_TRY_ASSIGN(const ir::TensorType x, call_.type(0));
    rank_ = x.rank();
    if (rank_ != 3 && rank_ != 4) return call_.invalid("the input is ", x, "; its rank must be 3 or 4");
    HEDDLE_TRY_ASSIGN(heads_, call_.take_i64("num_heads", 0));
    HEDDLE_TRY_ASSIGN(turned_, call_.take_i64("rotary_embedding_dim", 0));
    HEDDLE_TRY_ASSIGN(const int64_t interleaved, call_.take_i64("interleaved", 0));
    interleaved_ = interleaved != 0;
    const ir::Dim& last = x.shape.back();
    if (!last.is_static()) return call_.unsupported("the size of a head must be known; the input is ", x);
    size_ = last.value();
    if (rank_ == 3) {
      if (heads_ < 1 || size_ % heads_ != 0)
        return call_.invalid("num_heads is ", heads_, "; it must divide the last axis of ", x);
      size_ /= heads_;
    }
    if (turned_ == 0) turned_ = size_;
    if (turned_ < 0 || turned_ > size_ || turned_ % 2 != 0) {
      return call_.invalid("rotary_embedding_dim is ", turned_, "; it must be even and at most ", size_);
    }
    return {};
  }

  // [batch, positions, heads, size]
  Result<ValueId> by_position() {
    if (rank_ == 4) return call_.add("Transpose", {call_.input(0)}, {{"perm", kSwapHeads}}, "by_position");
    const ValueId shape = call_.constant(ir::Tensor::of_i64({0, 0, heads_, size_}), "shape");
    return call_.add("Reshape", {call_.input(0), shape}, {}, "by_position");
  }

  // [batch, positions, 1, turned / 2]
  Result<ValueId> factors(size_t input, std::string_view purpose) {
    HEDDLE_TRY_ASSIGN(ValueId cache, call_.required(input));
    if (call_.has(3)) {
      HEDDLE_TRY_ASSIGN(cache, call_.add("Gather", {cache, call_.input(3)}, {}, text(purpose, "_rows")));
    }
    const ir::TensorType& type = call_.value(cache).type;
    if (type.rank() != 3 || !ir::Dim::may_equal(type.shape[2], turned_ / 2)) {
      return call_.invalid("the ", purpose, "s are ", type, "; they must be [batch, positions, ", turned_ / 2,
                           "]");
    }
    const ValueId axis = call_.constant(ir::Tensor::of_i64({2}), text(purpose, "_axis"));
    return call_.add("Unsqueeze", {cache, axis}, {}, purpose);
  }

  // Of the last axis.
  Result<ValueId> cut(ValueId x, int64_t begin, int64_t end, int64_t step, std::string_view purpose) {
    const auto number = [&](int64_t n, std::string_view what) {
      return call_.constant(ir::Tensor::of_i64({n}), text(purpose, what));
    };
    return call_.add(
        "Slice", {x, number(begin, "_begin"), number(end, "_end"), number(3, "_axis"), number(step, "_step")},
        {}, purpose);
  }

  Result<ValueId> rotate(ValueId x, ValueId cosine, ValueId sine) {
    const int64_t half = turned_ / 2, step = interleaved_ ? 2 : 1;
    HEDDLE_TRY_ASSIGN(const ValueId a, cut(x, 0, interleaved_ ? turned_ : half, step, "first"));
    HEDDLE_TRY_ASSIGN(const ValueId b, cut(x, interleaved_ ? 1 : half, turned_, step, "second"));
    const auto product = [&](ValueId l, ValueId r, std::string_view purpose) {
      return call_.add("Mul", {l, r}, {}, purpose);
    };
    HEDDLE_TRY_ASSIGN(const ValueId ca, product(cosine, a, "cosine_first"));
    HEDDLE_TRY_ASSIGN(const ValueId sb, product(sine, b, "sine_second"));
    HEDDLE_TRY_ASSIGN(const ValueId sa, product(sine, a, "sine_first"));
    HEDDLE_TRY_ASSIGN(const ValueId cb, product(cosine, b, "cosine_second"));
    HEDDLE_TRY_ASSIGN(ValueId real, call_.add("Sub", {ca, sb}, {}, "real"));
    HEDDLE_TRY_ASSIGN(ValueId imaginary, call_.add("Add", {sa, cb}, {}, "imaginary"));
    if (!interleaved_) return call_.add("Concat", {real, imaginary}, {{"axis", int64_t{3}}}, "rotated");
    const ValueId axis = call_.constant(ir::Tensor::of_i64({4}), "pair_axis");
    HEDDLE_TRY_ASSIGN(real, call_.add("Unsqueeze", {real, axis}, {}, "real_column"));
    HEDDLE_TRY_ASSIGN(imaginary, call_.add("Unsqueeze", {imaginary, axis}, {}, "imaginary_column"));
    HEDDLE_TRY_ASSIGN(const ValueId pairs,
                      call_.add("Concat", {real, imaginary}, {{"axis", int64_t{4}}}, "pairs"));
    const ValueId shape = call_.constant(ir::Tensor::of_i64({0, 0, 0, turned_}), "rotated_shape");
    return call_.add("Reshape", {pairs, shape}, {}, "rotated");
  }

  Call& call_;
  size_t rank_ = 0;
  int64_t heads_ = 0, size_ = 0;
  int64_t turned_ = 0;  // of a head's size
  bool interleaved_ = false;
};

}  // namespace

Status convert_rotary_embedding(Call& call) { return Rotary(call).convert(); }

}  // namespace heddle::onnx
