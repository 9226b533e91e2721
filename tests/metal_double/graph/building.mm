#include "tests/metal_double/graph/building.h"

#include <algorithm>
#include <cstdlib>

#include "base/status.h"
#include "tests/metal_double/control.h"
#include "tests/metal_double/graph/field_checks.h"
#include "tests/metal_double/graph/numerics/strided.h"
#include "tests/metal_double/graph/touch.h"

namespace heddle::metal_double {

struct Graph {
  Touch touch;
  NSMutableArray<MPSGraphTensor*>* tensors = [[NSMutableArray alloc] init];
  ~Graph() { [tensors release]; }
};

namespace {

constexpr size_t kMostAxes = 16;
constexpr MPSDataType kTypes[] = {MPSDataTypeFloat32, MPSDataTypeFloat16, MPSDataTypeBFloat16,
                                  MPSDataTypeInt8,    MPSDataTypeUInt8,   MPSDataTypeInt16,
                                  MPSDataTypeInt32,   MPSDataTypeInt64,   MPSDataTypeBool};

}  // namespace

void refuse(std::string_view method, const std::string& why) {
  if (field() != nullptr) report_failure(method, why);
  [NSException raise:@"NSInvalidArgumentException"
              format:@"%s", text("-[MPSGraph ", method, "]: ", why).c_str()];
  std::abort();
}

MPSDataType known(MPSDataType type, std::string_view method) {
  if (std::ranges::find(kTypes, type) == std::end(kTypes)) refuse(method, "the double has no such data type");
  return type;
}

std::vector<int64_t> numbers_of(NSArray<NSNumber*>* array) {
  std::vector<int64_t> out;
  for (NSNumber* number in array) out.push_back([number longLongValue]);
  return out;
}

Shape shape_from(NSArray<NSNumber*>* shape, std::string_view method) {
  Shape extents = numbers_of(shape);
  if (extents.empty() || extents.size() > kMostAxes) refuse(method, "a shape has 1 to 16 axes here");
  for (const int64_t extent : extents) {
    if (extent < 1) refuse(method, text("an extent is ", extent, "; MPSGraph has no empty tensors"));
  }
  return extents;
}

NSArray<NSNumber*>* numbers_from(const Shape& shape) {
  NSMutableArray<NSNumber*>* array = [NSMutableArray array];
  for (const int64_t extent : shape) [array addObject:[NSNumber numberWithLongLong:extent]];
  return array;
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
  require(x.type == MPSDataTypeFloat32 || x.type == MPSDataTypeFloat16,
          text("takes f32 or f16, not ", shown(x.type)));
}
void Building::require_numbers(const Value& x) const {
  require(x.type != MPSDataTypeBool && x.type != MPSDataTypeBFloat16,
          text("takes numbers, not ", shown(x.type)));
}
void Building::require_integers(const Value& x) const {
  require(is_integer(x.type), text("takes integers, not ", shown(x.type)));
}
void Building::require_same(const Value& x, const Value& y) const {
  require(x.type == y.type,
          text("the operands are ", shown(x.type), " and ", shown(y.type), "; they must be of one type"));
}

size_t Building::axis(NSInteger axis, const Shape& shape) const {
  const auto rank = static_cast<NSInteger>(shape.size());
  require(axis >= -rank && axis < rank, text("there is no axis ", axis, " in ", shown(shape)));
  return static_cast<size_t>(axis < 0 ? axis + rank : axis);
}

std::vector<size_t> Building::axes(NSArray<NSNumber*>* axes, const Shape& shape) const {
  require(axes != nil && [axes count] > 0, "there are no axes");
  std::vector<size_t> out;
  for (const int64_t number : numbers_of(axes)) {
    out.push_back(axis(static_cast<NSInteger>(number), shape));
    require(std::ranges::count(out, out.back()) == 1, text("axis ", number, " stands twice"));
  }
  return out;
}

Shape Building::broadcast(const Shape& x, const Shape& y) const {
  const std::optional<Shape> shape = broadcast_shape(x, y);
  require(shape.has_value(), text(shown(x), " and ", shown(y), " do not broadcast"));
  return *shape;
}

std::vector<MPSGraphTensor*> Building::add(const std::vector<Value>& results, std::vector<Value> operands,
                                           Compute compute) {
  for (const Value& result : results) field_fits(*this, result.type, result.shape);
  const auto recipe =
      std::make_shared<const Recipe>(Recipe{method_, std::move(operands), std::move(compute)});
  std::vector<MPSGraphTensor*> tensors;
  for (size_t i = 0; i < results.size(); ++i) {
    MPSGraphTensor* tensor = [MPSGraphTensor tensorWithValue:{recipe, i, results[i].type, results[i].shape}];
    [graph_->tensors addObject:tensor];
    tensors.push_back(tensor);
  }
  return tensors;
}

MPSGraphTensor* Building::placeholder(MPSDataType type, const Shape& shape) {
  return add(std::vector<Value>{Value{nullptr, 0, type, shape}}, {}, nullptr)[0];
}

}  // namespace heddle::metal_double
