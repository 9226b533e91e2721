#include "tests/metal_double/graph/field_checks.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/status.h"
#include "tests/metal_double/control.h"
#include "tests/metal_double/graph/graph_faults.h"
#include "tests/metal_double/graph/numerics/elementwise.h"
#include "tests/metal_double/graph/numerics/strided.h"

namespace heddle::metal_double {

namespace {

bool within_last(const Value& x, size_t axis, int64_t last) {
  return static_cast<int64_t>(x.shape.size() - axis) <= last;
}

int64_t greatest_extent(const Shape& shape) { return *std::max_element(shape.begin(), shape.end()); }

// `made`, but as `f` has it.
template <class F>
MPSGraphTensor* changed(Building& b, MPSGraphTensor* made, F f) {
  const Value value = [made value];
  return b.add(value.type, value.shape, {value}, [f](auto in) { return f(in[0]); });
}

MPSGraphTensor* wrong(Building& b, MPSGraphTensor* made) {
  return changed(b, made, [](const Array& x) { return numerics::add(x, numerics::scalar(x.type(), 1)); });
}

bool names(const Value& value, std::initializer_list<const char*> methods) {
  return std::any_of(methods.begin(), methods.end(),
                     [&](const char* method) { return value.recipe->name.starts_with(method); });
}

// A product, through scaling, masks and shapes, but no identity.
bool comes_from_product(const Value& value) {
  if (names(value, {"matrixMultiplicationWithPrimaryTensor"})) return true;
  if (!names(value, {"multiplicationWithPrimaryTensor", "additionWithPrimaryTensor",
                     "selectWithPredicateTensor", "reshapeTensor", "castTensor"}))
    return false;
  return std::any_of(value.recipe->operands.begin(), value.recipe->operands.end(), comes_from_product);
}

bool comes_from_softmax_of_product(const Value& value) {
  if (names(value, {"softMaxWithTensor"})) return comes_from_product(value.recipe->operands[0]);
  return names(value, {"reshapeTensor", "castTensor"}) &&
         comes_from_softmax_of_product(value.recipe->operands[0]);
}

}  // namespace

void report_failure(std::string_view method, const std::string& why) {
  std::fprintf(stderr, "-[MPSGraph %s]: failed assertion `%s'\n", std::string(method).c_str(), why.c_str());
  std::abort();
}

void field_fits(const Building& b, MPSDataType type, const Shape& shape) {
  const FieldLimits* const limits = field();
  if (limits == nullptr) return;
  const int64_t elements = elements_of(shape);
  b.require(static_cast<int64_t>(shape.size()) <= limits->array_axes,
            text("[MPSNDArray initWithDevice:descriptor:]: ", shown(shape), " has too many axes"));
  b.require(
      elements <= limits->array_elements,
      text("[MPSNDArray initWithDevice:descriptor:]: product of dimension sizes > 2**31, of ", shown(shape)));
  b.require(
      elements * size_of(type) <= limits->array_bytes,
      text("[MPSNDArray initWithDevice:descriptor:]: total bytes of NDArray > 2**32, of ", shown(shape)));
}

void field_reduces(const Building& b, const Value& x, const std::vector<size_t>& axes) {
  const FieldLimits* const limits = field();
  if (limits == nullptr) return;
  for (const size_t axis : axes)
    b.require(within_last(x, axis, limits->reduced_axes), "reduction axis is not one of the minor four");
  const bool narrow = is_integer(x.type) && size_of(x.type) < 4;
  b.require(limits->narrow_reductions || !narrow, text("Failed to infer result type(s): ", shown(x.type)));
}

void field_scans(const Building& b, const Value& x, size_t axis) {
  const FieldLimits* const limits = field();
  if (limits == nullptr) return;
  b.require(within_last(x, axis, limits->ordered_axes), "axis is not one of the last four");
}

void field_gathers_along(const Building& b, const Value& x) {
  const FieldLimits* const limits = field();
  const auto above_one = std::count_if(x.shape.begin(), x.shape.end(), [](int64_t n) { return n > 1; });
  b.require(limits == nullptr || limits->lone_gathers || above_one > 1,
            "Rank of updates array must be above 1");
}

void field_scatters(const Building& b, const Value& data, MPSGraphScatterMode mode) {
  const FieldLimits* const limits = field();
  if (limits == nullptr || (mode != MPSGraphScatterModeMax && mode != MPSGraphScatterModeMin)) return;
  b.require(is_float(data.type) || 8 * size_of(data.type) <= limits->scatter_extreme_bits,
            text("Failed to infer result type(s): scatter of extremes of ", shown(data.type)));
}

void field_concatenates(const Building& b, const std::vector<Value>& parts) {
  const FieldLimits* const limits = field();
  for (const Value& part : parts)
    b.require(limits == nullptr || limits->bool_concats || part.type != MPSDataTypeBool,
              "Failed to infer result type(s): bool");
}

void field_signs(const Building& b, const Value& x) {
  const FieldLimits* const limits = field();
  b.require(limits == nullptr || limits->i64_signs || x.type != MPSDataTypeInt64,
            "Failed to infer result type(s): i64");
}

void field_counts_turns(const Building& b, const Value& turns) {
  const FieldLimits* const limits = field();
  b.require(limits == nullptr || limits->loops_take_one_element || turns.shape.empty(),
            "the number of iterations is no scalar tensor");
}

MPSGraphTensor* field_product(Building& b, const Value& x, const Value& y, MPSGraphTensor* made) {
  const FieldLimits* const limits = field();
  if (limits == nullptr) return made;
  const size_t rank = x.shape.size();
  const int64_t rows = x.shape[rank - 2], terms = x.shape[rank - 1], columns = y.shape.back();
  b.require(static_cast<int64_t>(std::max(rank, y.shape.size())) <= limits->product_axes,
            "product of more than four axes");
  if (!limits->sound_attention && x.type == MPSDataTypeFloat32 && comes_from_softmax_of_product(x))
    return changed(b, made, [](const Array& product) {
      return numerics::add(product, numerics::scalar(product.type(), std::nan("")));
    });
  const bool too_long = terms >= limits->wrong_terms && std::min(rows, columns) >= limits->wrong_from;
  return too_long || std::max({rows, terms, columns}) > limits->product_extent ? wrong(b, made) : made;
}

MPSGraphTensor* field_convolution(Building& b, const Value& x, const Value& w, MPSGraphTensor* made) {
  const FieldLimits* const limits = field();
  if (limits == nullptr) return made;
  const int64_t most =
      std::max({greatest_extent(x.shape), greatest_extent(w.shape), greatest_extent([made value].shape)});
  return most > limits->convolution_extent ? wrong(b, made) : made;
}

namespace {

// To the left and to the right in turn, as a GPU divides that does not round correctly.
Array with_rough_quotients(const Array& quotients, int ulps) {
  std::vector<float> rough = floats_of(quotients);
  for (size_t at = 0; at < rough.size(); ++at) {
    const float toward = at % 2 == 0 ? 0 : 2 * rough[at];
    for (int i = 0; i < ulps; ++i) rough[at] = std::nextafter(rough[at], toward);
  }
  return of_floats(quotients.type(), quotients.shape(), rough);
}

}  // namespace

MPSGraphTensor* field_quotient(Building& b, MPSGraphTensor* made) {
  const FieldLimits* const limits = field();
  if (limits == nullptr) return made;
  if ([made value].type == MPSDataTypeFloat32 && limits->division_ulps > 0) {
    return changed(b, made,
                   [ulps = limits->division_ulps](const Array& x) { return with_rough_quotients(x, ulps); });
  }
  if (limits->exact_division || !is_integer([made value].type)) return made;
  return changed(b, made, [](const Array& quotient) {
    return numerics::cast(numerics::cast(quotient, MPSDataTypeFloat32), quotient.type());
  });
}

namespace {

// What was first of equals becomes last.
Array with_ties_turned(const Array& keys, const Array& order, size_t axis) {
  const Lanes lanes(keys.shape(), axis);
  Array out = Array::zeros(MPSDataTypeInt32, order.shape());
  with_numbers(keys.type(), [&](auto tag) {
    lanes.each([&](int64_t first) {
      const auto place = [&](int64_t k) { return first + k * lanes.inner; };
      const auto key = [&](int64_t k) {
        const int32_t from = order.read<int32_t>()[place(k)];
        return static_cast<Computed<decltype(tag)>>(keys.read<decltype(tag)>()[place(from)]);
      };
      for (int64_t begin = 0, end = 0; begin < lanes.extent; begin = end) {
        while (end < lanes.extent && key(end) == key(begin)) ++end;
        if (end == begin) ++end;  // NaN
        for (int64_t k = begin; k < end; ++k)
          out.write<int32_t>()[place(k)] = order.read<int32_t>()[place(begin + end - 1 - k)];
      }
    });
  });
  return out;
}

}  // namespace

MPSGraphTensor* field_order(Building& b, const Value& x, size_t axis, MPSGraphTensor* order) {
  const FieldLimits* const limits = field();
  if (limits == nullptr) return order;
  field_scans(b, x, axis);
  const bool wide = x.type == MPSDataTypeInt64;
  b.require(limits->narrow_sorts || wide || size_of(x.type) == 4 || is_float(x.type),
            text("Failed to infer result type(s): sort of ", shown(x.type)));
  const int64_t lane = x.shape[axis], rows = elements_of(x.shape) / lane;
  if (rows >= limits->wrong_sort_rows || (wide && lane > limits->wrong_i64_sort))
    return changed(b, order, [](const Array& places) { return Array::zeros(places.type(), places.shape()); });
  if (limits->stable_sorts) return order;
  return b.add(MPSDataTypeInt32, x.shape, {x, [order value]},
               [axis](auto in) { return with_ties_turned(in[0], in[1], axis); });
}

Shape shape_of_index() {
  const FieldLimits* const limits = field();
  return limits == nullptr || limits->loops_take_one_element ? Shape{1} : Shape{};
}

NSArray<MPSGraphTensor*>* listed(NSArray<MPSGraphTensor*>* targets) {
  const FieldLimits* const limits = field();
  if (limits == nullptr || limits->results_in_order) return targets;
  NSMutableArray<MPSGraphTensor*>* turned = [NSMutableArray array];
  for (NSUInteger i = [targets count]; i-- > 0;) [turned addObject:[targets objectAtIndex:i]];
  return turned;
}

}  // namespace heddle::metal_double
