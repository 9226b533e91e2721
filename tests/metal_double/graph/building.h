// building.h: how the operators of MPSGraph's double are added: their checks, shapes and recipes.
//
//   What       A Building is open while one method of MPSGraph runs. Most operators are a node of ir, which
//              infers the shape and computes; the others give both themselves.
//   Checks     A wrong operand raises NSInvalidArgumentException with the method's name; as the field met it
//              (control.h), it ends the process. Two threads in one graph at once abort: MPSGraph is not safe
//              for that.
//   Lifetime   Tensors are autoreleased and kept by their graph.
#pragma once

#import <MetalPerformanceShadersGraph/MetalPerformanceShadersGraph.h>

#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
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
ir::DType dtype_of(MPSDataType type, std::string_view method);
MPSDataType type_of(ir::DType dtype);
std::vector<int64_t> numbers_of(NSArray<NSNumber*>* array);
// Refuses extents below 1 and more axes than the double has.
ir::Extents extents_of(NSArray<NSNumber*>* shape, std::string_view method);
NSArray<NSNumber*>* shape_of(const ir::Extents& extents);
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
  size_t axis(NSInteger axis, const Value& x) const;

  MPSGraphTensor* add(ir::DType dtype, const ir::Extents& extents, std::vector<Value> operands,
                      Compute compute);
  std::vector<MPSGraphTensor*> add(const std::vector<Value>& results, std::vector<Value> operands,
                                   Compute compute);
  // A node of ir; `constants` are its last operands.
  MPSGraphTensor* add_op(std::string_view op, std::vector<Value> operands,
                         const ir::Attributes& attributes = {}, std::vector<ir::Tensor> constants = {});
  MPSGraphTensor* placeholder(ir::DType dtype, const ir::Extents& extents);

 private:
  Graph* graph_;
  std::string method_;
};

}  // namespace heddle::metal_double
