// DeformConv: GridSample fetches what lies under each element of the kernel at each position, and a product
// with the weights sums it.
#include <algorithm>
#include <string>
#include <vector>

#include "onnx/operators.h"
#include "onnx/operators/parts.h"

namespace heddle::onnx {
namespace {

using ir::Dim;
using ir::DType;
using ir::ValueId;
using Ints = std::vector<int64_t>;

class DeformConv {
 public:
  explicit DeformConv(Call& call) : call_(call), parts_(call) {}

  Status convert() {
    HEDDLE_TRY(read());
    HEDDLE_TRY(check_offset());
    const ValueId x = call_.input(kX), offset = call_.input(kOffset);
    const ValueId spatial = parts_.extents(offset, 2, 2 + axes_);
    const ValueId batch = parts_.extent(x, 0);
    const ValueId stack = parts_.pair("Mul", batch, parts_.ints({offset_groups_}));
    // [batch * offset groups, channels of one, taps * first extent, other extents ..]
    const ValueId first = parts_.pair("Mul", parts_.extent(offset, 2), parts_.ints({taps_}));
    const ValueId rest = parts_.extents(offset, 3, 2 + axes_);
    const ValueId images =
        parts_.node("Reshape", {x, parts_.join({stack, parts_.ints({channels_ / offset_groups_}),
                                                parts_.extents(x, 2, 2 + axes_)})});
    const ValueId dim = parts_.ints({static_cast<int64_t>(axes_)});
    const ValueId grid =
        parts_.node("Reshape", {places(stack, spatial), parts_.join({stack, first, rest, dim})});
    ValueId columns = parts_.node("GridSample", {images, grid}, {{"places", int64_t{1}}});
    if (call_.has(kOffsetMask)) {
      const ValueId shape = parts_.join({stack, parts_.ints({1}), first, rest});
      columns = parts_.pair("Mul", columns, parts_.node("Reshape", {call_.input(kOffsetMask), shape}));
    }
    const ValueId points = parts_.node("ReduceProd", {spatial});
    const ValueId rows = parts_.ints({groups_, channels_ / groups_ * taps_});
    columns = parts_.node("Reshape", {columns, parts_.join({batch, rows, points})});
    const ValueId weight = parts_.node(
        "Reshape",
        {call_.input(kW), parts_.ints({groups_, outputs_ / groups_, channels_ / groups_ * taps_})});
    const ValueId shape = parts_.join({batch, parts_.ints({outputs_}), spatial});
    ValueId y = parts_.node("Reshape", {parts_.pair("MatMul", weight, columns), shape});
    if (call_.has(kBias)) {
      Ints behind;
      for (size_t axis = 1; axis <= axes_; ++axis) behind.push_back(static_cast<int64_t>(axis));
      y = parts_.pair("Add", y, parts_.unsqueeze(call_.input(kBias), behind));
    }
    return parts_.emit(y);
  }

 private:
  enum Input : size_t { kX, kW, kOffset, kBias, kOffsetMask };

  Result<Ints> take_list(std::string_view name, size_t count, int64_t otherwise) {
    HEDDLE_TRY_ASSIGN(const auto given, call_.take_ints(name));
    const Ints list = given.value_or(Ints(count, otherwise));
    bool small = list.size() != count;
    for (const int64_t n : list) small = small || n < otherwise;
    if (small) return call_.invalid(name, " must be ", count, " numbers of ", otherwise, " or more");
    return list;
  }

  Status read() {
    HEDDLE_TRY_ASSIGN(const ir::TensorType x, call_.type(kX));
    HEDDLE_TRY_ASSIGN(const ir::TensorType w, call_.type(kW));
    HEDDLE_TRY(call_.type(kOffset));
    if (x.rank() < 3 || w.rank() != x.rank() || !w.is_static())
      return call_.invalid("the input is ", x, " and the weight ", w,
                           "; they must be of one rank of 3 or more, the weight of known extents");
    axes_ = x.rank() - 2;
    dtype_ = x.dtype;
    if (dtype_ == DType::kF64) place_dtype_ = DType::kF64;
    outputs_ = w.shape[0].value();
    for (size_t i = 0; i < axes_; ++i) kernel_.push_back(w.shape[2 + i].value());
    HEDDLE_TRY_ASSIGN(taps_, ir::checked_elements(kernel_, dtype_));
    HEDDLE_TRY_ASSIGN(groups_, call_.take_i64("group", 1));
    HEDDLE_TRY_ASSIGN(offset_groups_, call_.take_i64("offset_group", 1));
    constexpr int64_t kMost = 1 << 16;
    if (taps_ > kMost || groups_ > kMost || offset_groups_ > kMost || w.shape[1].value() > ir::kMaxBytes) {
      return call_.unsupported("the weight ", w, " with group ", groups_, " and offset_group ",
                               offset_groups_, "; a kernel's elements and the groups are at most ", kMost);
    }
    HEDDLE_TRY_ASSIGN(const auto kernel, call_.take_ints("kernel_shape"));
    HEDDLE_TRY_ASSIGN(strides_, take_list("strides", axes_, 1));
    HEDDLE_TRY_ASSIGN(dilations_, take_list("dilations", axes_, 1));
    HEDDLE_TRY_ASSIGN(pads_, take_list("pads", 2 * axes_, 0));
    channels_ = w.shape[1].value() * groups_;
    if (groups_ < 1 || offset_groups_ < 1 || channels_ % std::max<int64_t>(offset_groups_, 1) != 0 ||
        outputs_ % std::max<int64_t>(groups_, 1) != 0 || !Dim::may_equal(x.shape[1], channels_)) {
      return call_.invalid("the input is ", x, " and the weight ", w, ", with group ", groups_,
                           " and offset_group ", offset_groups_, ", which do not divide the channels");
    }
    if (kernel && *kernel != kernel_)
      return call_.invalid("kernel_shape differs from the weight, which is ", w);
    return {};
  }

  Status check_operand(size_t input, std::string_view name, int64_t channels) {
    HEDDLE_TRY_ASSIGN(const ir::TensorType x, call_.type(kX));
    HEDDLE_TRY_ASSIGN(const ir::TensorType type, call_.type(input));
    bool fits = type.dtype == dtype_ && type.rank() == x.rank() && Dim::may_equal(type.shape[1], channels) &&
                Dim::may_equal(type.shape[0], x.shape[0]);
    for (size_t i = 0; fits && i < axes_; ++i) {
      const Dim room = x.shape[2 + i] + pads_[i] + pads_[axes_ + i] - dilations_[i] * (kernel_[i] - 1) - 1;
      fits = Dim::may_equal(type.shape[2 + i], Dim::floor_div(room, strides_[i]) + 1);
    }
    if (fits) return {};
    return call_.invalid("the ", name, " is ", type, "; for ", x, " it must have ", channels,
                         " channels and the extents of the output");
  }

  Status check_offset() {
    HEDDLE_TRY(check_operand(kOffset, "offset", offset_groups_ * taps_ * static_cast<int64_t>(axes_)));
    return call_.has(kOffsetMask) ? check_operand(kOffsetMask, "mask", offset_groups_ * taps_) : Status();
  }

  // [taps, extents of the output ..]: where an axis of the kernel lies without an offset.
  ValueId unmoved(size_t axis) {
    ir::Tensor taps = ir::Tensor::zeros(place_dtype_, {taps_});
    int64_t inner = 1;
    for (size_t i = axis + 1; i < axes_; ++i) inner *= kernel_[i];
    for (int64_t tap = 0; tap < taps_; ++tap)
      taps.set(tap, static_cast<double>(tap / inner % kernel_[axis] * dilations_[axis] - pads_[axis]));
    Ints behind, others = {0};
    for (size_t i = 1; i <= axes_; ++i) {
      behind.push_back(static_cast<int64_t>(i));
      if (i != axis + 1) others.push_back(static_cast<int64_t>(i));
    }
    const ValueId along = parts_.range(parts_.extent(call_.input(kOffset), 2 + axis), place_dtype_);
    const auto stride = static_cast<double>(strides_[axis]);
    const ValueId begin = parts_.pair("Mul", along, parts_.number(place_dtype_, stride));
    return parts_.pair("Add", parts_.unsqueeze(parts_.constant(std::move(taps)), behind),
                       parts_.unsqueeze(begin, others));
  }

  // [stack, taps, extents of the output .., axes], the last axis first; f32 at least.
  ValueId places(ValueId stack, ValueId spatial) {
    const ValueId counts = parts_.ints({taps_, static_cast<int64_t>(axes_)});
    const ValueId moves = parts_.cast(
        parts_.node("Reshape", {call_.input(kOffset), parts_.join({stack, counts, spatial})}), place_dtype_);
    std::vector<ValueId> axes;
    for (size_t axis = axes_; axis-- > 0;) {
      const ValueId number = parts_.number(DType::kI64, static_cast<double>(axis));
      const ValueId move = parts_.node("Gather", {moves, number}, {{"axis", int64_t{2}}});
      const ValueId place = parts_.pair("Add", move, unmoved(axis));
      axes.push_back(parts_.unsqueeze(place, {static_cast<int64_t>(2 + axes_)}));
    }
    return parts_.node("Concat", std::move(axes), {{"axis", int64_t{-1}}});
  }

  Call& call_;
  Parts parts_;
  size_t axes_ = 0;
  DType dtype_ = DType::kF32, place_dtype_ = DType::kF32;
  int64_t outputs_ = 0, channels_ = 0, taps_ = 1, groups_ = 1, offset_groups_ = 1;
  Ints kernel_, strides_, dilations_, pads_;
};

Status deform_conv(Call& call) { return DeformConv(call).convert(); }

}  // namespace

std::span<const Operator> deform_conv_operators() {
  static constexpr Operator kTable[] = {{"DeformConv", 19, deform_conv}};
  return kTable;
}

}  // namespace heddle::onnx
