// Operators on the bits of integers, and BitCast, which reads the same bits as another dtype.
#include <cstring>

#include "ir/ops/rules.h"
#include "ir/ops/tables.h"
#include "ir/ops/walk.h"

namespace heddle::ir {

namespace {

Inferred infer_not(const Node&, Operands in) {
  HEDDLE_TRY(accept(*in[0], "x", Accept::kInteger));
  return one(in[0]->type.dtype, in[0]->type.shape);
}

Status reference_not(const Node&, DataIn in, DataOut out) {
  for (int64_t i = 0; i < out[0].elements(); ++i) out[0].set_i64(i, ~in[0]->get_i64(i));
  return {};
}

Inferred infer_pair(const Node&, Operands in) {
  HEDDLE_TRY(accept(*in[0], "x", Accept::kInteger));
  HEDDLE_TRY(same_dtype(*in[0], "x", *in[1], "y"));
  HEDDLE_TRY_ASSIGN(Shape shape, broadcast(in[0]->type.shape, in[1]->type.shape));
  return one(in[0]->type.dtype, std::move(shape));
}

template <auto f>  // int64, int64 -> int64
Status reference_pair(const Node&, DataIn in, DataOut out) {
  const Strides x(in[0]->extents(), out[0].extents().rank());
  const Strides y(in[1]->extents(), out[0].extents().rank());
  walk(out[0].extents(), [&](const Index& index, int64_t flat) {
    out[0].set_i64(flat, f(in[0]->get_i64(x.at(index)), in[1]->get_i64(y.at(index))));
  });
  return {};
}

// By the width and more, or by less than nothing: only what the sign fills in is left.
int64_t shift_left(int64_t x, int64_t by) {
  return by < 0 || by > 63 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(x) << by);
}
int64_t shift_right(int64_t x, int64_t by) { return x >> (by < 0 || by > 63 ? 63 : by); }
int64_t shift_right_u64(int64_t x, int64_t by) {
  return by < 0 || by > 63 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(x) >> by);
}

Inferred infer_shift(const Node& node, Operands in) {
  const std::string direction = node.attributes.str("direction");
  if (direction != "LEFT" && direction != "RIGHT") {
    return Status::invalid("attribute 'direction' is '", direction, "'; it has to be 'LEFT' or 'RIGHT'");
  }
  return infer_pair(node, in);
}

Status reference_shift(const Node& node, DataIn in, DataOut out) {
  if (node.attributes.str("direction") == "LEFT") return reference_pair<shift_left>(node, in, out);
  if (in[0]->dtype() == DType::kU64) return reference_pair<shift_right_u64>(node, in, out);
  return reference_pair<shift_right>(node, in, out);
}

Inferred infer_bit_cast(const Node& node, Operands in) {
  const std::string to = node.attributes.str("to");
  const std::optional<DType> dtype = dtype_from_name(to);
  if (!dtype.has_value()) {
    return Status::invalid("attribute 'to' is '", to, "'; it has to be one of ", dtype_names());
  }
  if (size_of(*dtype) != size_of(in[0]->type.dtype)) {
    return Status::invalid("x is ", in[0]->type, ", whose elements have ", size_of(in[0]->type.dtype),
                           " bytes; those of ", to, " have ", size_of(*dtype));
  }
  return one(*dtype, in[0]->type.shape);
}

// A bool is 0 or 1 wherever bits come from.
Status reference_bit_cast(const Node&, DataIn in, DataOut out) {
  if (in[0]->elements() > 0)
    std::memcpy(out[0].mutable_data(), in[0]->data(), static_cast<size_t>(in[0]->bytes()));
  if (out[0].dtype() != DType::kBool) return {};
  for (int64_t i = 0; i < out[0].elements(); ++i) out[0].set_i64(i, out[0].get_i64(i));
  return {};
}

template <auto f>
OpDef pair(std::string_view name) {
  return {name, 2, 2, 1, 1, {}, infer_pair, reference_pair<f>, Dependence::kElementwise};
}

}  // namespace

std::vector<OpDef> bitwise_ops() {
  using enum AttributeKind;
  return {
      pair<[](int64_t a, int64_t b) { return a & b; }>("BitwiseAnd"),
      pair<[](int64_t a, int64_t b) { return a | b; }>("BitwiseOr"),
      pair<[](int64_t a, int64_t b) { return a ^ b; }>("BitwiseXor"),
      {"BitwiseNot", 1, 1, 1, 1, {}, infer_not, reference_not, Dependence::kElementwise},
      {"BitShift",
       2,
       2,
       1,
       1,
       {{"direction", kString, true}},
       infer_shift,
       reference_shift,
       Dependence::kElementwise},
      {"BitCast", 1, 1, 1, 1, {{"to", kString, true}}, infer_bit_cast, reference_bit_cast},
  };
}

}  // namespace heddle::ir
