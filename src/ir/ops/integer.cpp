// Products of 8-bit integers less their zero points, summed up in 32 bits (wrapping).
//
// A zero point is of its operand's dtype. MatMulInteger's broadcast to their operands: a scalar, a column
// [.., M, 1] for a, a row [N] for b. ConvInteger's are a scalar for x, and for w a scalar or [M, 1, ..];
// padding is x's zero point, so it adds nothing.
#include <algorithm>

#include "ir/ops/convolution.h"
#include "ir/ops/rules.h"
#include "ir/ops/tables.h"
#include "ir/ops/walk.h"
#include "ir/window.h"

namespace heddle::ir {

namespace {

Status check_byte(const Value& value, std::string_view argument) {
  if (value.type.dtype == DType::kI8 || value.type.dtype == DType::kU8) return {};
  return Status::invalid(argument, " is ", value.type, "; it has to be of i8 or u8");
}

Status check_zero_point(const Value* point, const Value& of, std::string_view argument,
                        std::string_view operand) {
  if (point == nullptr) return {};
  HEDDLE_TRY(same_dtype(of, operand, *point, argument));
  const Result<Shape> joined = broadcast(of.type.shape, point->type.shape);
  if (joined.ok() && may_equal(joined.value(), of.type.shape)) return {};
  return Status::invalid(argument, " is ", point->type, "; it has to broadcast to ", of.type);
}

Inferred infer_matmul_integer(const Node&, Operands in) {
  for (const size_t i : {size_t{0}, size_t{1}}) {
    HEDDLE_TRY(check_byte(*in[i], i == 0 ? "a" : "b"));
    HEDDLE_TRY(check_rank(*in[i], i == 0 ? "a" : "b", 1));
  }
  HEDDLE_TRY(check_zero_point(optional_input(in, 2), *in[0], "a_zero_point", "a"));
  HEDDLE_TRY(check_zero_point(optional_input(in, 3), *in[1], "b_zero_point", "b"));
  Shape left = in[0]->type.shape, right = in[1]->type.shape;
  if (left.size() == 1) left.insert(left.begin(), 1);
  if (right.size() == 1) right.push_back(1);
  if (!Dim::may_equal(left.back(), right[right.size() - 2])) {
    return Status::invalid("the inner extents differ: ", left.back(), " of ", in[0]->type, " against ",
                           right[right.size() - 2], " of ", in[1]->type);
  }
  HEDDLE_TRY_ASSIGN(Shape shape,
                    broadcast(Shape(left.begin(), left.end() - 2), Shape(right.begin(), right.end() - 2)));
  if (in[0]->type.rank() > 1) shape.push_back(left[left.size() - 2]);
  if (in[1]->type.rank() > 1) shape.push_back(right.back());
  return one(DType::kI32, std::move(shape));
}

std::vector<int64_t> less_zero_point(const Tensor& t, const Tensor* point) {
  std::vector<int64_t> out(static_cast<size_t>(t.elements()));
  const Strides at(point == nullptr ? Extents() : point->extents(), t.extents().rank());
  walk(t.extents(), [&](const Index& index, int64_t flat) {
    out[static_cast<size_t>(flat)] = t.get_i64(flat) - (point == nullptr ? 0 : point->get_i64(at.at(index)));
  });
  return out;
}

Extents with_matrix_axes(const Extents& e, bool left) {
  Extents out;
  if (e.rank() == 1 && left) out.push_back(1);
  for (int64_t extent : e) out.push_back(extent);
  if (e.rank() == 1 && !left) out.push_back(1);
  return out;
}

Status reference_matmul_integer(const Node&, DataIn in, DataOut out) {
  const std::vector<int64_t> a = less_zero_point(*in[0], optional_input(in, 2));
  const std::vector<int64_t> b = less_zero_point(*in[1], optional_input(in, 3));
  const Extents left = with_matrix_axes(in[0]->extents(), true);
  const Extents right = with_matrix_axes(in[1]->extents(), false);
  const int64_t m = left[left.rank() - 2], k = left[left.rank() - 1], n = right[right.rank() - 1];
  const size_t rank = std::max(left.rank(), right.rank()) - 2;
  const Extents batch(out[0].extents().span().first(rank));
  const Strides left_at(Extents(left.span().first(left.rank() - 2)), rank);
  const Strides right_at(Extents(right.span().first(right.rank() - 2)), rank);
  walk(batch, [&](const Index& index, int64_t flat) {
    const int64_t x = left_at.at(index) * m * k, y = right_at.at(index) * k * n;
    for (int64_t i = 0; i < m * n; ++i) {
      int64_t sum = 0;
      for (int64_t p = 0; p < k; ++p)
        sum += a[static_cast<size_t>(x + i / n * k + p)] * b[static_cast<size_t>(y + p * n + i % n)];
      out[0].set_i64(flat * m * n + i, static_cast<int32_t>(sum));
    }
  });
  return {};
}

Inferred infer_conv_integer(const Node& node, Operands in) {
  const TensorType& x = in[0]->type;
  const TensorType& w = in[1]->type;
  for (const size_t i : {size_t{0}, size_t{1}}) HEDDLE_TRY(check_byte(*in[i], i == 0 ? "x" : "w"));
  HEDDLE_TRY(check_rank(*in[0], "x", 3));
  HEDDLE_TRY(check_rank(*in[1], "w", x.rank(), x.rank()));
  HEDDLE_TRY(check_groups(node, x, w));
  HEDDLE_TRY_ASSIGN(const std::vector<int64_t> kernel, kernel_extents(w));
  HEDDLE_TRY_ASSIGN(const Window window, Window::of(node, kernel.size(), kernel));
  if (window.kernel != kernel)
    return Status::invalid("attribute 'kernel_shape' differs from w, which is ", w);
  if (const Value* point = optional_input(in, 2)) {
    HEDDLE_TRY(same_dtype(*in[0], "x", *point, "x_zero_point"));
    HEDDLE_TRY(check_rank(*point, "x_zero_point", 0, 0));
  }
  if (const Value* point = optional_input(in, 3)) {
    HEDDLE_TRY(check_zero_point(point, *in[1], "w_zero_point", "w"));
    for (size_t axis = 1; axis < point->type.rank(); ++axis) {
      if (!point->type.shape[axis].is(1))
        return Status::invalid("w_zero_point is ", point->type, "; it has to be a scalar or [M, 1, ..]");
    }
  }
  Shape shape = {x.shape[0], w.shape[0]};
  for (size_t i = 0; i < window.axes(); ++i) {
    HEDDLE_TRY_ASSIGN(Dim extent, window.out(i, x.shape[2 + i]));
    shape.push_back(std::move(extent));
  }
  return one(DType::kI32, std::move(shape));
}

Status reference_conv_integer(const Node& node, DataIn in, DataOut out) {
  HEDDLE_TRY_ASSIGN(const std::vector<int64_t> kernel, kernel_extents(in[1]->type()));
  HEDDLE_TRY_ASSIGN(const Window window, Window::of(node, kernel.size(), kernel));
  const Extents& x = in[0]->extents();
  const std::vector<int64_t> input = less_zero_point(*in[0], optional_input(in, 2));
  const std::vector<int64_t> weights = less_zero_point(*in[1], optional_input(in, 3));
  const int64_t group_in = in[1]->extents()[1];
  const int64_t group_out = out[0].extents()[1] / node.attributes.i64("group", 1);
  const Extents taps(kernel);
  const int64_t tap_count = taps.elements();
  const Strides strides(x);
  walk(out[0].extents(), [&](const Index& index, int64_t flat) {
    int64_t sum = 0;
    walk(taps, [&](const Index& tap, int64_t tap_flat) {
      Index source{};
      source[0] = index[0];
      source[1] = group_out == 0 ? 0 : index[1] / group_out * group_in;
      for (size_t i = 0; i < window.axes(); ++i) {
        source[2 + i] =
            index[2 + i] * window.strides[i] + tap[i] * window.dilations[i] - window.pads(i, x[2 + i]).first;
        if (source[2 + i] < 0 || source[2 + i] >= x[2 + i]) return;
      }
      const int64_t at = strides.at(source);
      for (int64_t c = 0; c < group_in; ++c) {
        sum += input[static_cast<size_t>(at + c * strides[1])] *
               weights[static_cast<size_t>((index[1] * group_in + c) * tap_count + tap_flat)];
      }
    });
    out[0].set_i64(flat, static_cast<int32_t>(sum));
  });
  return {};
}

}  // namespace

std::vector<OpDef> integer_ops() {
  using enum AttributeKind;
  return {
      {"MatMulInteger", 2, 4, 1, 1, {}, infer_matmul_integer, reference_matmul_integer},
      {"ConvInteger",
       2,
       4,
       1,
       1,
       {{"kernel_shape", kInts},
        {"strides", kInts},
        {"pads", kInts},
        {"dilations", kInts},
        {"group", kInt},
        {"auto_pad", kString}},
       infer_conv_integer,
       reference_conv_integer},
  };
}

}  // namespace heddle::ir
