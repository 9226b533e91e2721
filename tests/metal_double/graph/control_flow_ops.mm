// The for loop: its block is called once, while the graph is built, and makes the plan of a turn.
#include "tests/metal_double/graph/building.h"
#include "tests/metal_double/graph/field_checks.h"

using namespace heddle::metal_double;
using heddle::ir::DType;
using heddle::ir::Tensor;

@implementation MPSGraph (MPSGraphControlFlowOps)
- (NSArray<MPSGraphTensor*>*)forLoopWithNumberOfIterations:(MPSGraphTensor*)numberOfIterations
                                      initialBodyArguments:(NSArray<MPSGraphTensor*>*)initialBodyArguments
                                                      body:(MPSGraphForLoopBodyBlock)body
                                                      name:(NSString*)name {
  Building b(self, "forLoopWithNumberOfIterations:initialBodyArguments:body:name:");
  b.require(
      b.value(numberOfIterations).dtype == DType::kI32 && b.value(numberOfIterations).extents.elements() == 1,
      "the number of iterations is a scalar of i32");
  field_counts_turns(b, b.value(numberOfIterations));
  const heddle::ir::Extents index_extents = extents_of_index();
  std::vector<Value> sources{[b.placeholder(DType::kI32, index_extents) value]};
  NSMutableArray<MPSGraphTensor*>* arguments = [NSMutableArray array];
  MPSGraphTensor* number = [MPSGraphTensor tensorWithValue:sources[0]];
  for (MPSGraphTensor* initial in initialBodyArguments) {
    MPSGraphTensor* argument = b.placeholder([initial value].dtype, [initial value].extents);
    [arguments addObject:argument];
    sources.push_back([argument value]);
  }
  NSArray<MPSGraphTensor*>* results = body(number, arguments);
  b.require([results count] == [initialBodyArguments count], "the body gives as many tensors as it takes");
  const std::vector<Value> made = values_of(results), carried = values_of(initialBodyArguments);
  for (size_t i = 0; i < made.size(); ++i) {
    b.require(made[i].dtype == carried[i].dtype && made[i].extents == carried[i].extents,
              heddle::text("argument ", i, " changes its type"));
  }
  const std::vector<Value> outside = captures(sources, made);
  for (const Value& value : outside) sources.push_back(value);
  heddle::Result<Plan> plan = Plan::make(sources, made);
  b.require(plan.ok(), plan.ok() ? "" : plan.status().message());
  std::vector<Value> operands{b.value(numberOfIterations)};
  operands.insert(operands.end(), carried.begin(), carried.end());
  operands.insert(operands.end(), outside.begin(), outside.end());
  const size_t count = carried.size();
  const auto turns = std::make_shared<const Plan>(*std::move(plan));
  const auto compute = [turns, count, index_extents](std::span<const Tensor> in) -> heddle::Result<Tensors> {
    Tensors state(in.begin() + 1, in.begin() + 1 + static_cast<std::ptrdiff_t>(count));
    for (int64_t i = 0; i < in[0].get_i64(0); ++i) {
      Tensor index = Tensor::zeros(DType::kI32, index_extents);
      index.set_i64(0, i);
      Tensors turn{index};
      turn.insert(turn.end(), state.begin(), state.end());
      turn.insert(turn.end(), in.begin() + 1 + static_cast<std::ptrdiff_t>(count), in.end());
      HEDDLE_TRY_ASSIGN(state, turns->run(turn));
    }
    return state;
  };
  NSMutableArray<MPSGraphTensor*>* out = [NSMutableArray array];
  for (MPSGraphTensor* tensor : b.add(carried, operands, compute)) [out addObject:tensor];
  return out;
}
@end
