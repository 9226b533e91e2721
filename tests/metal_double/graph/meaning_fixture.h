// meaning_fixture.h: examples of what operations of MPSGraph mean, and their check on the double.
//
//   What       An Example is a graph of one method, what it is fed, and the numbers worked out by hand.
//   Threads    One at a time.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "base/status.h"
#include "tests/close_fixture.h"
#include "tests/metal_double/graph/building.h"
#include "tests/metal_double/graph/executable.h"
#include "tests/metal_double/graph/numerics/elementwise.h"

namespace heddle::metal_double {

inline const double kNaN = std::numeric_limits<double>::quiet_NaN();
inline const double kInfinity = std::numeric_limits<double>::infinity();

// An array of small numbers.
struct Given {
  Shape shape;
  std::vector<double> values;
  MPSDataType type = MPSDataTypeFloat32;
};

inline Array array_of(const Given& given) {
  Array wide = Array::zeros(MPSDataTypeFloat32, given.shape);
  REQUIRE(static_cast<size_t>(wide.elements()) == given.values.size());
  for (size_t i = 0; i < given.values.size(); ++i)
    wide.write<float>()[i] = static_cast<float>(given.values[i]);
  return numerics::cast(wide, given.type);
}

struct In {
  NSArray<MPSGraphTensor*>* tensors;
  MPSGraphTensor* operator[](NSUInteger i) const { return [tensors objectAtIndex:i]; }
};
using Method = MPSGraphTensor* (*)(MPSGraph* graph, In in);
struct Example {
  const char* says;
  std::vector<Given> in;
  Method method;
  Given wanted;
};

inline Array result_of(const Example& example) {
  MPSGraph* graph = [[[MPSGraph alloc] init] autorelease];
  NSMutableArray<MPSGraphTensor*>* in = [NSMutableArray array];
  NSMutableDictionary<MPSGraphTensor*, MPSGraphShapedType*>* feeds =
      [NSMutableDictionary dictionaryWithCapacity:4];
  for (const Given& given : example.in) {
    NSArray<NSNumber*>* shape = numbers_from(given.shape);
    [in addObject:[graph placeholderWithShape:shape dataType:given.type name:nil]];
    [feeds setObject:[[[MPSGraphShapedType alloc] initWithShape:shape dataType:given.type] autorelease]
              forKey:[in lastObject]];
  }
  const id<MTLDevice> device = [MTLCreateSystemDefaultDevice() autorelease];
  MPSGraphExecutable* executable =
      [graph compileWithDevice:[MPSGraphDevice deviceWithMTLDevice:device]
                          feeds:feeds
                  targetTensors:[NSArray arrayWithObject:example.method(graph, {in})]
               targetOperations:nil
          compilationDescriptor:nil];
  Arrays operands;
  for (MPSGraphTensor* feed in [executable feedTensors])
    operands.push_back(array_of(example.in[[in indexOfObject:feed]]));
  return run_now(executable, operands)[0];
}

inline void check_meaning(const Example& example) {
  CAPTURE(example.says);
  @autoreleasepool {
    const Array got = result_of(example);
    CHECK(shown(got.type()) == shown(example.wanted.type));
    REQUIRE(shown(got.shape()) == shown(example.wanted.shape));
    const Array read = got.type() == MPSDataTypeBool || got.type() == MPSDataTypeFloat32
                           ? got
                           : numerics::cast(got, MPSDataTypeFloat32);
    for (size_t i = 0; i < example.wanted.values.size(); ++i) {
      CAPTURE(i);
      const double value = read.type() == MPSDataTypeBool ? read.read<uint8_t>()[i]
                                                          : static_cast<double>(read.read<float>()[i]);
      const double wanted = example.wanted.values[i];
      CHECK_MESSAGE(test::is_close(value, wanted, {1e-6, 1e-6}), value, " instead of ", wanted);
      CHECK((std::isnan(value) || std::signbit(value) == std::signbit(wanted)));
    }
  }
}

inline NSArray<NSNumber*>* n(std::initializer_list<int64_t> values) { return numbers_from(Shape(values)); }
constexpr MPSDataType kI32 = MPSDataTypeInt32, kI8 = MPSDataTypeInt8, kF16 = MPSDataTypeFloat16,
                      kBool = MPSDataTypeBool;

}  // namespace heddle::metal_double
