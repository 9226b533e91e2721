// One result element from one element of each operand; activations.
#include "tests/metal_double/graph/building.h"
#include "tests/metal_double/graph/field_checks.h"
#include "tests/metal_double/graph/numerics/elementwise.h"
#include "tests/metal_double/graph/numerics/normalization.h"

using namespace heddle::metal_double;

namespace {

enum class Takes { kFloats, kNumbers, kBools, kIntegers, kAny };
enum class Gives { kSame, kBool };

void check(const Building& b, const Value& x, Takes takes) {
  if (takes == Takes::kFloats) b.require_floats(x);
  if (takes == Takes::kNumbers) b.require_numbers(x);
  if (takes == Takes::kBools) b.require(x.type == MPSDataTypeBool, "takes bool");
  if (takes == Takes::kIntegers) b.require_integers(x);
}

MPSDataType given(Gives gives, const Value& x) { return gives == Gives::kBool ? MPSDataTypeBool : x.type; }

using OfOne = Array (*)(const Array&);
using OfTwo = Array (*)(const Array&, const Array&);

MPSGraphTensor* one(MPSGraph* graph, const char* method, OfOne f, Takes takes, Gives gives,
                    MPSGraphTensor* tensor) {
  Building b(graph, method);
  const Value& x = b.value(tensor);
  check(b, x, takes);
  if (f == numerics::sign) field_signs(b, x);
  return b.add(given(gives, x), x.shape, {x}, [f](auto in) { return f(in[0]); });
}

MPSGraphTensor* two(MPSGraph* graph, const char* method, OfTwo f, Takes takes, Gives gives,
                    MPSGraphTensor* first, MPSGraphTensor* second) {
  Building b(graph, method);
  const Value &x = b.value(first), &y = b.value(second);
  b.require_same(x, y);
  check(b, x, takes);
  MPSGraphTensor* made =
      b.add(given(gives, x), b.broadcast(x.shape, y.shape), {x, y}, [f](auto in) { return f(in[0], in[1]); });
  return f == numerics::divide ? field_quotient(b, made) : made;
}

}  // namespace

#define UNARY(selector, f, takes, gives)                                                   \
  -(MPSGraphTensor*)selector : (MPSGraphTensor*)tensor name : (NSString*)name {            \
    return one(self, #selector ":name:", numerics::f, Takes::takes, Gives::gives, tensor); \
  }
#define BINARY(selector, f, takes, gives)                                                         \
  -(MPSGraphTensor*)selector : (MPSGraphTensor*)primaryTensor secondaryTensor                     \
      : (MPSGraphTensor*)secondaryTensor name : (NSString*)name {                                 \
    return two(self, #selector ":secondaryTensor:name:", numerics::f, Takes::takes, Gives::gives, \
               primaryTensor, secondaryTensor);                                                   \
  }

@implementation MPSGraph (MPSGraphArithmeticOps)
UNARY(identityWithTensor, identity, kAny, kSame)
UNARY(exponentWithTensor, exponent, kFloats, kSame)
UNARY(logarithmWithTensor, logarithm, kFloats, kSame)
UNARY(squareWithTensor, square, kNumbers, kSame)
UNARY(squareRootWithTensor, square_root, kFloats, kSame)
UNARY(reciprocalWithTensor, reciprocal, kFloats, kSame)
UNARY(absoluteWithTensor, absolute, kNumbers, kSame)
UNARY(negativeWithTensor, negative, kNumbers, kSame)
UNARY(signWithTensor, sign, kNumbers, kSame)
UNARY(ceilWithTensor, ceil, kFloats, kSame)
UNARY(floorWithTensor, floor, kFloats, kSame)
UNARY(rintWithTensor, rint, kFloats, kSame)
UNARY(sinWithTensor, sin, kFloats, kSame)
UNARY(cosWithTensor, cos, kFloats, kSame)
UNARY(tanWithTensor, tan, kFloats, kSame)
UNARY(sinhWithTensor, sinh, kFloats, kSame)
UNARY(coshWithTensor, cosh, kFloats, kSame)
UNARY(asinWithTensor, asin, kFloats, kSame)
UNARY(acosWithTensor, acos, kFloats, kSame)
UNARY(atanWithTensor, atan, kFloats, kSame)
UNARY(asinhWithTensor, asinh, kFloats, kSame)
UNARY(acoshWithTensor, acosh, kFloats, kSame)
UNARY(atanhWithTensor, atanh, kFloats, kSame)
UNARY(tanhWithTensor, tanh, kFloats, kSame)
UNARY(erfWithTensor, erf, kFloats, kSame)
UNARY(notWithTensor, logical_not, kBools, kSame)
UNARY(bitwiseNOTWithTensor, bitwise_not, kIntegers, kSame)
UNARY(isInfiniteWithTensor, is_infinite, kFloats, kBool)
UNARY(isNaNWithTensor, is_nan, kFloats, kBool)
BINARY(additionWithPrimaryTensor, add, kNumbers, kSame)
BINARY(subtractionWithPrimaryTensor, subtract, kNumbers, kSame)
BINARY(multiplicationWithPrimaryTensor, multiply, kNumbers, kSame)
BINARY(divisionWithPrimaryTensor, divide, kNumbers, kSame)
BINARY(moduloWithPrimaryTensor, modulo, kFloats, kSame)
BINARY(powerWithPrimaryTensor, power, kFloats, kSame)
BINARY(minimumWithPrimaryTensor, minimum, kNumbers, kSame)
BINARY(maximumWithPrimaryTensor, maximum, kNumbers, kSame)
BINARY(minimumWithNaNPropagationWithPrimaryTensor, minimum_with_nan, kFloats, kSame)
BINARY(maximumWithNaNPropagationWithPrimaryTensor, maximum_with_nan, kFloats, kSame)
BINARY(bitwiseANDWithPrimaryTensor, bitwise_and, kIntegers, kSame)
BINARY(bitwiseORWithPrimaryTensor, bitwise_or, kIntegers, kSame)
BINARY(bitwiseXORWithPrimaryTensor, bitwise_xor, kIntegers, kSame)
BINARY(bitwiseLeftShiftWithPrimaryTensor, shift_left, kIntegers, kSame)
BINARY(bitwiseRightShiftWithPrimaryTensor, shift_right, kIntegers, kSame)
BINARY(logicalANDWithPrimaryTensor, bitwise_and, kBools, kSame)
BINARY(logicalORWithPrimaryTensor, bitwise_or, kBools, kSame)
BINARY(logicalXORWithPrimaryTensor, bitwise_xor, kBools, kSame)
BINARY(equalWithPrimaryTensor, equal, kNumbers, kBool)
BINARY(notEqualWithPrimaryTensor, not_equal, kNumbers, kBool)
BINARY(lessThanWithPrimaryTensor, less, kNumbers, kBool)
BINARY(lessThanOrEqualToWithPrimaryTensor, less_or_equal, kNumbers, kBool)
BINARY(greaterThanWithPrimaryTensor, greater, kNumbers, kBool)
BINARY(greaterThanOrEqualToWithPrimaryTensor, greater_or_equal, kNumbers, kBool)

- (MPSGraphTensor*)selectWithPredicateTensor:(MPSGraphTensor*)predicateTensor
                         truePredicateTensor:(MPSGraphTensor*)truePredicateTensor
                        falsePredicateTensor:(MPSGraphTensor*)falseSelectTensor
                                        name:(NSString*)name {
  Building b(self, "selectWithPredicateTensor:truePredicateTensor:falsePredicateTensor:name:");
  const Value &which = b.value(predicateTensor), &yes = b.value(truePredicateTensor),
              &no = b.value(falseSelectTensor);
  b.require(which.type == MPSDataTypeBool, "the predicate must be bool");
  b.require_same(yes, no);
  return b.add(yes.type, b.broadcast(b.broadcast(which.shape, yes.shape), no.shape), {which, yes, no},
               [](auto in) { return numerics::select(in[0], in[1], in[2]); });
}
@end

@implementation MPSGraph (MPSGraphActivationOps)
UNARY(sigmoidWithTensor, sigmoid, kFloats, kSame)
- (MPSGraphTensor*)softMaxWithTensor:(MPSGraphTensor*)tensor axis:(NSInteger)axis name:(NSString*)name {
  Building b(self, "softMaxWithTensor:axis:name:");
  const Value& x = b.value(tensor);
  b.require_floats(x);
  const size_t along = b.axis(axis, x.shape);
  field_reduces(b, x, {along});
  return b.add(x.type, x.shape, {x}, [along](auto in) { return numerics::softmax(in[0], along); });
}
@end
