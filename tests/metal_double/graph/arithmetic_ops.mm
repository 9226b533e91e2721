// One result element from one element of each operand; activations.
#include <cmath>

#include "tests/metal_double/graph/building.h"
#include "tests/metal_double/graph/field_checks.h"

using namespace heddle::metal_double;
using heddle::ir::DType;

namespace {

enum class Takes { kFloats, kNumbers, kBools, kIntegers, kAny };

void check(const Building& b, const Value& x, Takes takes) {
  if (takes == Takes::kFloats) b.require_floats(x);
  if (takes == Takes::kNumbers) b.require_numbers(x);
  if (takes == Takes::kBools) b.require(x.dtype == DType::kBool, "takes bool");
  if (takes == Takes::kIntegers) b.require(heddle::ir::is_integer(x.dtype), "takes integers");
}

MPSGraphTensor* one(MPSGraph* graph, const char* method, const char* op, Takes takes,
                    MPSGraphTensor* tensor) {
  Building b(graph, method);
  check(b, b.value(tensor), takes);
  if (std::string_view(op) == "Sign") field_signs(b, b.value(tensor));
  return b.add_op(op, {b.value(tensor)});
}

MPSGraphTensor* two(MPSGraph* graph, const char* method, const char* op, Takes takes, MPSGraphTensor* first,
                    MPSGraphTensor* second, const heddle::ir::Attributes& attributes = {}) {
  Building b(graph, method);
  const Value &x = b.value(first), &y = b.value(second);
  b.require_same(x, y);
  check(b, x, takes);
  MPSGraphTensor* made = b.add_op(op, {x, y}, attributes);
  return std::string_view(op) == "Div" ? field_quotient(b, made) : made;
}

// Where MPSGraph's meaning is not that of ir's operator.
using Function = double (*)(double);
MPSGraphTensor* by_element(MPSGraph* graph, const char* method, MPSGraphTensor* tensor, Function f) {
  Building b(graph, method);
  const Value& x = b.value(tensor);
  b.require_floats(x);
  return b.add(x.dtype, x.extents, {x},
               [f](std::span<const heddle::ir::Tensor> in) -> heddle::Result<Tensors> {
                 heddle::ir::Tensor out = heddle::ir::Tensor::zeros(in[0].dtype(), in[0].extents());
                 for (int64_t i = 0; i < out.elements(); ++i) out.set(i, f(in[0].get(i)));
                 return Tensors{out};
               });
}

}  // namespace

#define UNARY(selector, op, takes)                                              \
  -(MPSGraphTensor*)selector : (MPSGraphTensor*)tensor name : (NSString*)name { \
    return one(self, #selector ":name:", op, Takes::takes, tensor);             \
  }
#define BINARY(selector, op, takes)                                                                         \
  -(MPSGraphTensor*)selector : (MPSGraphTensor*)primaryTensor secondaryTensor                               \
      : (MPSGraphTensor*)secondaryTensor name : (NSString*)name {                                           \
    return two(self, #selector ":secondaryTensor:name:", op, Takes::takes, primaryTensor, secondaryTensor); \
  }

@implementation MPSGraph (MPSGraphArithmeticOps)
UNARY(identityWithTensor, "Identity", kAny)
UNARY(exponentWithTensor, "Exp", kFloats)
UNARY(logarithmWithTensor, "Log", kFloats)
UNARY(squareWithTensor, "Square", kNumbers)
UNARY(squareRootWithTensor, "Sqrt", kFloats)
UNARY(reciprocalWithTensor, "Reciprocal", kFloats)
UNARY(absoluteWithTensor, "Abs", kNumbers)
UNARY(negativeWithTensor, "Neg", kNumbers)
UNARY(ceilWithTensor, "Ceil", kFloats)
UNARY(floorWithTensor, "Floor", kFloats)
UNARY(rintWithTensor, "Round", kFloats)
UNARY(sinWithTensor, "Sin", kFloats)
UNARY(cosWithTensor, "Cos", kFloats)
UNARY(tanWithTensor, "Tan", kFloats)
UNARY(sinhWithTensor, "Sinh", kFloats)
UNARY(coshWithTensor, "Cosh", kFloats)
UNARY(asinWithTensor, "Asin", kFloats)
UNARY(acosWithTensor, "Acos", kFloats)
UNARY(atanWithTensor, "Atan", kFloats)
UNARY(asinhWithTensor, "Asinh", kFloats)
UNARY(acoshWithTensor, "Acosh", kFloats)
UNARY(atanhWithTensor, "Atanh", kFloats)
UNARY(tanhWithTensor, "Tanh", kFloats)
UNARY(erfWithTensor, "Erf", kFloats)
UNARY(notWithTensor, "Not", kBools)
UNARY(isInfiniteWithTensor, "IsInf", kFloats)
UNARY(isNaNWithTensor, "IsNaN", kFloats)
UNARY(bitwiseNOTWithTensor, "BitwiseNot", kIntegers)
BINARY(additionWithPrimaryTensor, "Add", kNumbers)
BINARY(subtractionWithPrimaryTensor, "Sub", kNumbers)
BINARY(multiplicationWithPrimaryTensor, "Mul", kNumbers)
BINARY(divisionWithPrimaryTensor, "Div", kNumbers)
BINARY(powerWithPrimaryTensor, "Pow", kFloats)
BINARY(minimumWithPrimaryTensor, "Min", kIntegers)
BINARY(maximumWithPrimaryTensor, "Max", kIntegers)
BINARY(minimumWithNaNPropagationWithPrimaryTensor, "Min", kFloats)
BINARY(maximumWithNaNPropagationWithPrimaryTensor, "Max", kFloats)
BINARY(equalWithPrimaryTensor, "Equal", kNumbers)
BINARY(lessThanWithPrimaryTensor, "Less", kNumbers)
BINARY(lessThanOrEqualToWithPrimaryTensor, "LessOrEqual", kNumbers)
BINARY(greaterThanWithPrimaryTensor, "Greater", kNumbers)
BINARY(greaterThanOrEqualToWithPrimaryTensor, "GreaterOrEqual", kNumbers)
BINARY(logicalANDWithPrimaryTensor, "And", kBools)
BINARY(logicalORWithPrimaryTensor, "Or", kBools)
BINARY(logicalXORWithPrimaryTensor, "Xor", kBools)
BINARY(bitwiseANDWithPrimaryTensor, "BitwiseAnd", kIntegers)
BINARY(bitwiseORWithPrimaryTensor, "BitwiseOr", kIntegers)
BINARY(bitwiseXORWithPrimaryTensor, "BitwiseXor", kIntegers)

// 0 for NaN, unlike ir's.
- (MPSGraphTensor*)signWithTensor:(MPSGraphTensor*)tensor name:(NSString*)name {
  if (heddle::ir::is_integer([tensor value].dtype)) return one(self, "sign", "Sign", Takes::kNumbers, tensor);
  return by_element(self, "signWithTensor:name:", tensor,
                    [](double x) { return static_cast<double>((x > 0) - (x < 0)); });
}

// C's remainder, of floats.
- (MPSGraphTensor*)moduloWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                           secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                      name:(NSString*)name {
  return two(self, "moduloWithPrimaryTensor:secondaryTensor:name:", "Mod", Takes::kFloats, primaryTensor,
             secondaryTensor, {{"fmod", int64_t{1}}});
}

- (MPSGraphTensor*)notEqualWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                             secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                        name:(NSString*)name {
  Building b(self, "notEqualWithPrimaryTensor:secondaryTensor:name:");
  const Value &x = b.value(primaryTensor), &y = b.value(secondaryTensor);
  b.require_same(x, y);
  Value equal = [b.add_op("Equal", {x, y}) value];
  return b.add_op("Not", {equal});
}

- (MPSGraphTensor*)selectWithPredicateTensor:(MPSGraphTensor*)predicateTensor
                         truePredicateTensor:(MPSGraphTensor*)truePredicateTensor
                        falsePredicateTensor:(MPSGraphTensor*)falseSelectTensor
                                        name:(NSString*)name {
  Building b(self, "selectWithPredicateTensor:truePredicateTensor:falsePredicateTensor:name:");
  const Value &yes = b.value(truePredicateTensor), &no = b.value(falseSelectTensor);
  b.require(b.value(predicateTensor).dtype == DType::kBool, "the predicate must be bool");
  b.require_same(yes, no);
  return b.add_op("Where", {b.value(predicateTensor), yes, no});
}

// The hardware takes the shift modulo the width.
static MPSGraphTensor* shift(MPSGraph* graph, const char* method, MPSGraphTensor* first,
                             MPSGraphTensor* second, bool left) {
  Building b(graph, method);
  const Value &x = b.value(first), &y = b.value(second);
  b.require_same(x, y);
  b.require(heddle::ir::is_integer(x.dtype), "takes integers");
  heddle::ir::Tensor mask = heddle::ir::Tensor::zeros(x.dtype, {1});
  mask.set_i64(0, 8 * heddle::ir::size_of(x.dtype) - 1);
  Value by = [b.add_op("BitwiseAnd", {y}, {}, {mask}) value];
  return b.add_op("BitShift", {x, by}, {{"direction", std::string(left ? "LEFT" : "RIGHT")}});
}
- (MPSGraphTensor*)bitwiseLeftShiftWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                                     secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                                name:(NSString*)name {
  return shift(self, "bitwiseLeftShiftWithPrimaryTensor:", primaryTensor, secondaryTensor, true);
}
- (MPSGraphTensor*)bitwiseRightShiftWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                                      secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                                 name:(NSString*)name {
  return shift(self, "bitwiseRightShiftWithPrimaryTensor:", primaryTensor, secondaryTensor, false);
}
@end

@implementation MPSGraph (MPSGraphActivationOps)
UNARY(sigmoidWithTensor, "Sigmoid", kFloats)
- (MPSGraphTensor*)softMaxWithTensor:(MPSGraphTensor*)tensor axis:(NSInteger)axis name:(NSString*)name {
  Building b(self, "softMaxWithTensor:axis:name:");
  b.require_floats(b.value(tensor));
  return b.add_op("Softmax", {b.value(tensor)},
                  {{"axis", static_cast<int64_t>(b.axis(axis, b.value(tensor)))}});
}
@end
