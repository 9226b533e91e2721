#include "tests/metal_double/graph/building.h"

#include <cstdio>
#include <cstdlib>

#include "base/atomic.h"
#include "ir/op.h"
#include "tests/metal_double/control.h"
#include "tests/metal_double/graph/field_checks.h"
#include "tests/metal_double/graph/touch.h"

namespace heddle::metal_double {

using ir::DType;

struct Graph {
  Touch touch;
  NSMutableArray<MPSGraphTensor*>* tensors = [[NSMutableArray alloc] init];
  ~Graph() { [tensors release]; }
};

namespace {

struct TypePair {
  DType ours;
  MPSDataType theirs;
};
constexpr TypePair kTypes[] = {
    {DType::kF32, MPSDataTypeFloat32}, {DType::kF16, MPSDataTypeFloat16}, {DType::kBF16, MPSDataTypeBFloat16},
    {DType::kI8, MPSDataTypeInt8},     {DType::kU8, MPSDataTypeUInt8},    {DType::kI16, MPSDataTypeInt16},
    {DType::kI32, MPSDataTypeInt32},   {DType::kI64, MPSDataTypeInt64},   {DType::kBool, MPSDataTypeBool},
};

}  // namespace

void refuse(std::string_view method, const std::string& why) {
  if (field() != nullptr) report_failure(method, why);
  [NSException raise:@"NSInvalidArgumentException"
              format:@"%s", text("-[MPSGraph ", method, "]: ", why).c_str()];
  std::abort();
}

DType dtype_of(MPSDataType type, std::string_view method) {
  for (const TypePair& pair : kTypes) {
    if (pair.theirs == type) return pair.ours;
  }
  refuse(method, "the double has no such data type");
}

MPSDataType type_of(DType dtype) {
  for (const TypePair& pair : kTypes) {
    if (pair.ours == dtype) return pair.theirs;
  }
  return MPSDataTypeInvalid;
}

std::vector<int64_t> numbers_of(NSArray<NSNumber*>* array) {
  std::vector<int64_t> out;
  for (NSNumber* number in array) out.push_back([number longLongValue]);
  return out;
}

ir::Extents extents_of(NSArray<NSNumber*>* shape, std::string_view method) {
  const std::vector<int64_t> numbers = numbers_of(shape);
  if (numbers.empty() || numbers.size() > ir::kMaxRank) refuse(method, "a shape has 1 to 8 axes here");
  for (const int64_t extent : numbers) {
    if (extent < 1) refuse(method, text("an extent is ", extent, "; MPSGraph has no empty tensors"));
  }
  return ir::Extents(numbers);
}

NSArray<NSNumber*>* shape_of(const ir::Extents& extents) {
  NSMutableArray<NSNumber*>* shape = [NSMutableArray array];
  for (const int64_t extent : extents) [shape addObject:[NSNumber numberWithLongLong:extent]];
  return shape;
}

std::vector<Value> values_of(NSArray<MPSGraphTensor*>* tensors) {
  std::vector<Value> out;
  for (MPSGraphTensor* tensor in tensors) out.push_back([tensor value]);
  return out;
}

Graph* make_graph() { return new Graph; }
void destroy(Graph* graph) { delete graph; }

Building::Building(MPSGraph* graph, std::string_view method)
    : graph_(static_cast<Graph*>([graph building])), method_(method) {
  graph_->touch.enter("MPSGraph", method_);
}
Building::~Building() { graph_->touch.leave(); }

const Value& Building::value(MPSGraphTensor* tensor) const {
  require(tensor != nil, "an operand is nil");
  return [tensor value];
}

void Building::require(bool holds, const std::string& why) const {
  if (!holds) refuse(method_, why);
}
void Building::require_floats(const Value& x) const {
  require(x.dtype == DType::kF32 || x.dtype == DType::kF16, text("takes f32 or f16, not ", x.dtype));
}
void Building::require_numbers(const Value& x) const {
  require(x.dtype != DType::kBool && x.dtype != DType::kBF16, text("takes numbers, not ", x.dtype));
}
void Building::require_same(const Value& x, const Value& y) const {
  require(x.dtype == y.dtype,
          text("the operands are ", x.dtype, " and ", y.dtype, "; they must be of one type"));
}

size_t Building::axis(NSInteger axis, const Value& x) const {
  const Result<size_t> normal = ir::normalize_axis(axis, x.extents.rank());
  if (!normal.ok()) refuse(method_, normal.status().message());
  return *normal;
}

std::vector<MPSGraphTensor*> Building::add(const std::vector<Value>& results, std::vector<Value> operands,
                                           Compute compute) {
  for (const Value& result : results) field_fits(*this, result.dtype, result.extents);
  const auto recipe =
      std::make_shared<const Recipe>(Recipe{method_, std::move(operands), std::move(compute)});
  std::vector<MPSGraphTensor*> tensors;
  for (size_t i = 0; i < results.size(); ++i) {
    MPSGraphTensor* tensor =
        [MPSGraphTensor tensorWithValue:{recipe, i, results[i].dtype, results[i].extents}];
    [graph_->tensors addObject:tensor];
    tensors.push_back(tensor);
  }
  return tensors;
}

MPSGraphTensor* Building::add(DType dtype, const ir::Extents& extents, std::vector<Value> operands,
                              Compute compute) {
  return add({Value{nullptr, 0, dtype, extents}}, std::move(operands), std::move(compute))[0];
}

MPSGraphTensor* Building::placeholder(DType dtype, const ir::Extents& extents) {
  return add(dtype, extents, {}, nullptr);
}

MPSGraphTensor* Building::add_op(std::string_view op, std::vector<Value> operands,
                                 const ir::Attributes& attributes, std::vector<ir::Tensor> constants) {
  ir::Node node;
  node.op = ir::find_op(op);
  node.name = method_;
  node.attributes = attributes;
  node.outputs = {0};
  std::vector<ir::Value> types;
  for (const Value& operand : operands)
    types.push_back({"", {operand.dtype, ir::to_shape(operand.extents)}, {}, {}, {}});
  for (const ir::Tensor& constant : constants) types.push_back({"", constant.type(), constant, {}, {}});
  std::vector<const ir::Value*> in;
  for (size_t i = 0; i < types.size(); ++i) {
    node.inputs.push_back(static_cast<ir::ValueId>(i));
    in.push_back(&types[i]);
  }
  const Result<std::vector<ir::Value>> made = ir::infer(node, in);
  if (!made.ok()) refuse(method_, made.status().message());
  const auto extents = (*made)[0].type.extents();
  require(extents.has_value() && extents->rank() > 0 && extents->elements() > 0, "the result would be empty");
  Compute compute = [node, constants](std::span<const ir::Tensor> tensors) -> Result<Tensors> {
    std::vector<const ir::Tensor*> all;
    for (const ir::Tensor& tensor : tensors) all.push_back(&tensor);
    for (const ir::Tensor& tensor : constants) all.push_back(&tensor);
    return ir::evaluate(node, all);
  };
  return add((*made)[0].type.dtype, *extents, std::move(operands), std::move(compute));
}

}  // namespace heddle::metal_double
