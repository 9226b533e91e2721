// The for loop: its block is called once, while the graph is built, and makes the plan of a turn.
#include "tests/metal_double/graph/building.h"
#include "tests/metal_double/graph/field_checks.h"

using namespace heddle::metal_double;

@implementation MPSGraph (MPSGraphControlFlowOps)
- (NSArray<MPSGraphTensor*>*)forLoopWithNumberOfIterations:(MPSGraphTensor*)numberOfIterations
                                      initialBodyArguments:(NSArray<MPSGraphTensor*>*)initialBodyArguments
                                                      body:(MPSGraphForLoopBodyBlock)body
                                                      name:(NSString*)name {
  Building b(self, "forLoopWithNumberOfIterations:initialBodyArguments:body:name:");
  const Value& turns_wanted = b.value(numberOfIterations);
  b.require(turns_wanted.type == MPSDataTypeInt32 && elements_of(turns_wanted.shape) == 1,
            "the number of iterations is a scalar of i32");
  field_counts_turns(b, turns_wanted);
  const Shape index_shape = shape_of_index();
  std::vector<Value> sources{[b.placeholder(MPSDataTypeInt32, index_shape) value]};
  NSMutableArray<MPSGraphTensor*>* arguments = [NSMutableArray array];
  MPSGraphTensor* number = [MPSGraphTensor tensorWithValue:sources[0]];
  for (MPSGraphTensor* initial in initialBodyArguments) {
    MPSGraphTensor* argument = b.placeholder([initial value].type, [initial value].shape);
    [arguments addObject:argument];
    sources.push_back([argument value]);
  }
  NSArray<MPSGraphTensor*>* results = body(number, arguments);
  b.require([results count] == [initialBodyArguments count], "the body gives as many tensors as it takes");
  const std::vector<Value> made = values_of(results), carried = values_of(initialBodyArguments);
  for (size_t i = 0; i < made.size(); ++i) {
    b.require(made[i].type == carried[i].type && made[i].shape == carried[i].shape,
              heddle::text("argument ", i, " changes its type"));
  }
  const std::vector<Value> outside = captures(sources, made);
  for (const Value& value : outside) sources.push_back(value);
  heddle::Result<Plan> plan = Plan::make(sources, made);
  b.require(plan.ok(), plan.ok() ? "" : plan.status().message());
  std::vector<Value> operands{turns_wanted};
  operands.insert(operands.end(), carried.begin(), carried.end());
  operands.insert(operands.end(), outside.begin(), outside.end());
  const size_t count = carried.size();
  const auto turns = std::make_shared<const Plan>(*std::move(plan));
  const auto compute = [turns, count, index_shape](std::span<const Array> in) {
    const auto captured = in.subspan(1 + count);
    Arrays state(in.begin() + 1, captured.begin());
    for (int32_t i = 0; i < *in[0].read<int32_t>(); ++i) {
      Array index = Array::zeros(MPSDataTypeInt32, index_shape);
      *index.write<int32_t>() = i;
      Arrays turn{index};
      turn.insert(turn.end(), state.begin(), state.end());
      turn.insert(turn.end(), captured.begin(), captured.end());
      state = turns->run(turn);
    }
    return state;
  };
  NSMutableArray<MPSGraphTensor*>* out = [NSMutableArray array];
  for (MPSGraphTensor* tensor : b.add(carried, operands, compute)) [out addObject:tensor];
  return out;
}
@end
