// rules.h: what the operators' shape rules are made of.
//
//   What       Checks of operands that name the argument, and ways to follow the contents of small integer
//              tensors.
//   Threads    Pure functions; any thread.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "ir/op.h"

namespace heddle::ir {

using Operands = std::span<const Value* const>;
using Inferred = Result<std::vector<Value>>;
using DataIn = std::span<const Tensor* const>;
using DataOut = std::span<Tensor>;
using Reference = Status (*)(const Node&, DataIn, DataOut);

// kNumber is without u64: an operator whose rule does integers as i64 would take its upper half as negative.
// kIndex: i32, i64.
enum class Accept : uint8_t { kAny, kFloat, kNumber, kNumberOrU64, kInteger, kIndex, kBool };

Status accept(const Value& value, std::string_view argument, Accept wanted);
Status same_dtype(const Value& a, std::string_view a_name, const Value& b, std::string_view b_name);
Status check_rank(const Value& value, std::string_view argument, size_t least, size_t most = kMaxRank);
// As far as the extents are known.
Status check_shape(const Value& value, std::string_view argument, const Shape& wanted);
bool may_equal(const Shape& a, const Shape& b);

// The axis attribute or argument of a value: "axis 5 is outside [-3, 2] of f32[2, 3, 4]".
Result<size_t> axis_of(int64_t axis, const TensorType& type);
// Sorted and distinct.
Result<std::vector<size_t>> axes_of(const std::vector<int64_t>& axes, const TensorType& type);

inline const Value* optional_input(Operands in, size_t i) { return i < in.size() ? in[i] : nullptr; }
inline const Tensor* optional_input(DataIn in, size_t i) { return i < in.size() ? in[i] : nullptr; }

// Tensors as the operands of a shape rule: types and elements are known.
class KnownOperands {
 public:
  explicit KnownOperands(DataIn in);
  KnownOperands(const KnownOperands&) = delete;
  KnownOperands& operator=(const KnownOperands&) = delete;
  Operands operands() const { return pointers_; }  // as long as this lives

 private:
  std::vector<Value> values_;
  std::vector<const Value*> pointers_;
};

// An optional operand that is added to what becomes of input 0, the x.
Status check_addend(Operands in, size_t i, std::string_view argument, const Shape& wanted);

// One output. Contents are kept for small tensors of integers or bools of static shape only.
Value typed(DType dtype, Shape shape, std::optional<std::vector<Dim>> contents = std::nullopt);
Inferred one(DType dtype, Shape shape, std::optional<std::vector<Dim>> contents = std::nullopt);

// The elements of a 1-D or 0-D integer argument as Dims. Not known: `count` unknown() ones when the length is
// static, else unsupported.
struct Argument {
  std::vector<Dim> dims;
  bool known = true;
};
Result<Argument> shape_argument(const Value& value, std::string_view argument);
// The same where numbers are needed at compile time (axes, steps): unsupported when they are not constant.
Result<std::vector<int64_t>> number_argument(const Value& value, std::string_view argument);

// Contents of operators that only move elements: runs the reference on positions instead of elements. Bit i
// of `moved` is set when input i holds elements; the others (indices, pads) have to be known numbers. Adds
// contents to `out` where all is known.
void follow_moves(const Node& node, Operands in, uint32_t moved, Reference reference,
                  std::vector<Value>& out);

// Contents of element-wise operators on broadcast operands; nothing as soon as one element is not known.
using DimFunction = std::optional<Dim> (*)(const Node& node, std::span<const Dim> operands);
std::optional<std::vector<Dim>> zip_contents(const Node& node, Operands in, const TensorType& out,
                                             DimFunction f);

}  // namespace heddle::ir
