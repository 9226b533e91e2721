// building.h: how the operators of MPSGraph's double are added: their checks, shapes and recipes.
//
//   What       A Building is open while one method of MPSGraph runs: the method checks its operands and gives
//              the results' types and shapes, graph/numerics computes.
//   Checks     A wrong operand raises NSInvalidArgumentException with the method's name; as the field met it
//              (control.h), it ends the process. Two threads in one graph at once abort: MPSGraph is not safe
//              for that.
//   Lifetime   Tensors are autoreleased and kept by their graph.
#pragma once

#import <MetalPerformanceShadersGraph/MetalPerformanceShadersGraph.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/metal_double/graph/recipe.h"

// The double's parts of Apple's classes.
@interface MPSGraphTensor (HeddleDouble)
+ (instancetype)tensorWithValue:(const heddle::metal_double::Value&)value;
- (const heddle::metal_double::Value&)value;
@end
@interface MPSGraph (HeddleDouble)
- (void*)building;
@end

namespace heddle::metal_double {

[[noreturn]] void refuse(std::string_view method, const std::string& why);
// Refuses what the double does not have.
MPSDataType known(MPSDataType type, std::string_view method);
std::vector<int64_t> numbers_of(NSArray<NSNumber*>* array);
// Refuses extents below 1 and more axes than MPSGraph has.
Shape shape_from(NSArray<NSNumber*>* shape, std::string_view method);
NSArray<NSNumber*>* numbers_from(const Shape& shape);
std::vector<Value> values_of(NSArray<MPSGraphTensor*>* tensors);

// What a graph holds while it is built.
struct Graph;
Graph* make_graph();
void destroy(Graph* graph);

class Building {
 public:
  Building(MPSGraph* graph, std::string_view method);
  ~Building();
  Building(const Building&) = delete;
  Building& operator=(const Building&) = delete;

  const Value& value(MPSGraphTensor* tensor) const;
  void require(bool holds, const std::string& why) const;
  void require_floats(const Value& x) const;  // f32 and f16: MPSGraph has bf16 for moving only
  void require_numbers(const Value& x) const;
  void require_same(const Value& x, const Value& y) const;
  void require_integers(const Value& x) const;
  size_t axis(NSInteger axis, const Shape& shape) const;  // negative ones count from the end
  std::vector<size_t> axes(NSArray<NSNumber*>* axes, const Shape& shape) const;
  Shape broadcast(const Shape& x, const Shape& y) const;

  // compute(arrays) gives the one result.
  template <class F>
  MPSGraphTensor* add(MPSDataType type, const Shape& shape, std::vector<Value> operands, F compute) {
    return add({Value{nullptr, 0, type, shape}}, std::move(operands),
               Compute([compute](std::span<const Array> in) { return Arrays{compute(in)}; }))[0];
  }
  std::vector<MPSGraphTensor*> add(const std::vector<Value>& results, std::vector<Value> operands,
                                   Compute compute);
  MPSGraphTensor* placeholder(MPSDataType type, const Shape& shape);

 private:
  Graph* graph_;
  std::string method_;
};

}  // namespace heddle::metal_double
