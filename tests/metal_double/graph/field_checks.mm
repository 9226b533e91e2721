#include "tests/metal_double/graph/field_checks.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "tests/metal_double/control.h"
#include "tests/metal_double/graph/graph_faults.h"

namespace heddle::metal_double {

using ir::DType;
using ir::Extents;
using ir::Tensor;

namespace {

bool within_last(const Value& x, int64_t axis, int64_t last) {
  return static_cast<int64_t>(x.extents.rank()) - axis <= last;
}

int64_t greatest_extent(const Extents& extents) { return *std::max_element(extents.begin(), extents.end()); }

Tensor copy_of(const Tensor& tensor) {
  Tensor out = Tensor::zeros(tensor.dtype(), tensor.extents());
  std::memcpy(out.mutable_data(), tensor.data(), static_cast<size_t>(tensor.bytes()));
  return out;
}

// `made`, but each element as `f` has it.
MPSGraphTensor* changed(Building& b, MPSGraphTensor* made, const std::function<void(Tensor&, int64_t)>& f) {
  const Value value = [made value];
  return b.add(value.dtype, value.extents, {value}, [f](std::span<const Tensor> in) -> Result<Tensors> {
    Tensor out = copy_of(in[0]);
    for (int64_t at = 0; at < out.elements(); ++at) f(out, at);
    return Tensors{out};
  });
}

MPSGraphTensor* wrong(Building& b, MPSGraphTensor* made) {
  return changed(b, made, [](Tensor& out, int64_t at) { out.set(at, out.get(at) + 1); });
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

void field_fits(const Building& b, DType dtype, const Extents& extents) {
  const FieldLimits* const limits = field();
  if (limits == nullptr) return;
  const int64_t elements = extents.elements();
  b.require(static_cast<int64_t>(extents.rank()) <= limits->array_axes,
            text("[MPSNDArray initWithDevice:descriptor:]: ", extents, " has too many axes"));
  b.require(
      elements <= limits->array_elements,
      text("[MPSNDArray initWithDevice:descriptor:]: product of dimension sizes > 2**31, of ", extents));
  b.require(elements * ir::size_of(dtype) <= limits->array_bytes,
            text("[MPSNDArray initWithDevice:descriptor:]: total bytes of NDArray > 2**32, of ", extents));
}

void field_reduces(const Building& b, const Value& x, const std::vector<int64_t>& axes) {
  const FieldLimits* const limits = field();
  if (limits == nullptr) return;
  for (const int64_t axis : axes)
    b.require(within_last(x, axis, limits->reduced_axes), "reduction axis is not one of the minor four");
  const bool narrow = ir::is_integer(x.dtype) && ir::size_of(x.dtype) < 4;
  b.require(limits->narrow_reductions || !narrow, text("Failed to infer result type(s): ", x.dtype));
}

void field_scans(const Building& b, const Value& x, size_t axis) {
  const FieldLimits* const limits = field();
  if (limits == nullptr) return;
  b.require(within_last(x, static_cast<int64_t>(axis), limits->ordered_axes),
            "axis is not one of the last four");
}

void field_gathers_along(const Building& b, const Value& x) {
  const FieldLimits* const limits = field();
  const auto above_one = std::count_if(x.extents.begin(), x.extents.end(), [](int64_t n) { return n > 1; });
  b.require(limits == nullptr || limits->lone_gathers || above_one > 1,
            "Rank of updates array must be above 1");
}

void field_scatters(const Building& b, const Value& data, MPSGraphScatterMode mode) {
  const FieldLimits* const limits = field();
  if (limits == nullptr || (mode != MPSGraphScatterModeMax && mode != MPSGraphScatterModeMin)) return;
  b.require(ir::is_float(data.dtype) || 8 * ir::size_of(data.dtype) <= limits->scatter_extreme_bits,
            text("Failed to infer result type(s): scatter of extremes of ", data.dtype));
}

void field_concatenates(const Building& b, const std::vector<Value>& parts) {
  const FieldLimits* const limits = field();
  for (const Value& part : parts)
    b.require(limits == nullptr || limits->bool_concats || part.dtype != DType::kBool,
              "Failed to infer result type(s): bool");
}

void field_signs(const Building& b, const Value& x) {
  const FieldLimits* const limits = field();
  b.require(limits == nullptr || limits->i64_signs || x.dtype != DType::kI64,
            "Failed to infer result type(s): i64");
}

void field_counts_turns(const Building& b, const Value& turns) {
  const FieldLimits* const limits = field();
  b.require(limits == nullptr || limits->loops_take_one_element || turns.extents.rank() == 0,
            "the number of iterations is no scalar tensor");
}

MPSGraphTensor* field_product(Building& b, const Value& x, const Value& y, MPSGraphTensor* made) {
  const FieldLimits* const limits = field();
  if (limits == nullptr) return made;
  const size_t rank = x.extents.rank();
  const int64_t rows = x.extents[rank - 2], terms = x.extents[rank - 1],
                columns = y.extents[y.extents.rank() - 1];
  b.require(static_cast<int64_t>(std::max(rank, y.extents.rank())) <= limits->product_axes,
            "product of more than four axes");
  if (!limits->sound_attention && x.dtype == DType::kF32 && comes_from_softmax_of_product(x))
    return changed(b, made, [](Tensor& out, int64_t at) { out.set(at, std::nan("")); });
  const bool too_long = terms >= limits->wrong_terms && std::min(rows, columns) >= limits->wrong_from;
  return too_long || std::max({rows, terms, columns}) > limits->product_extent ? wrong(b, made) : made;
}

MPSGraphTensor* field_convolution(Building& b, const Value& x, const Value& w, MPSGraphTensor* made) {
  const FieldLimits* const limits = field();
  if (limits == nullptr) return made;
  const int64_t most = std::max(
      {greatest_extent(x.extents), greatest_extent(w.extents), greatest_extent([made value].extents)});
  return most > limits->convolution_extent ? wrong(b, made) : made;
}

// Through f32.
MPSGraphTensor* field_quotient(Building& b, MPSGraphTensor* made) {
  const FieldLimits* const limits = field();
  if (limits == nullptr || limits->exact_division || !ir::is_integer([made value].dtype)) return made;
  return changed(b, made, [](Tensor& out, int64_t at) {
    const auto rounded = static_cast<double>(static_cast<float>(out.get_i64(at)));
    out.set_i64(at, rounded >= 0x1p63 ? INT64_MAX : static_cast<int64_t>(rounded));
  });
}

namespace {

// Of one lane; what was first of equals becomes last.
void turn_ties(const Tensor& keys, Tensor& order, const std::vector<int64_t>& places) {
  const auto key = [&](size_t at) {
    return keys.get(places[static_cast<size_t>(order.get_i64(places[at]))]);
  };
  for (size_t begin = 0, end = 0; begin < places.size(); begin = end) {
    while (end < places.size() && key(end) == key(begin)) ++end;
    if (end == begin) ++end;  // NaN
    for (size_t low = begin, high = end; low + 1 < high; ++low) {
      --high;
      const int64_t first = order.get_i64(places[low]);
      order.set_i64(places[low], order.get_i64(places[high]));
      order.set_i64(places[high], first);
    }
  }
}

}  // namespace

MPSGraphTensor* field_order(Building& b, const Value& x, size_t axis, MPSGraphTensor* order) {
  const FieldLimits* const limits = field();
  if (limits == nullptr) return order;
  field_scans(b, x, axis);
  const bool wide = x.dtype == DType::kI64;
  const bool kept = wide || x.dtype == DType::kI32 || x.dtype == DType::kF32 || x.dtype == DType::kF16;
  b.require(limits->narrow_sorts || kept, text("Failed to infer result type(s): sort of ", x.dtype));
  const int64_t lane = x.extents[axis], rows = x.extents.elements() / lane;
  if (rows >= limits->wrong_sort_rows || (wide && lane > limits->wrong_i64_sort))
    return changed(b, order, [](Tensor& out, int64_t at) { out.set_i64(at, 0); });
  if (limits->stable_sorts) return order;
  int64_t inner = 1;
  for (size_t i = axis + 1; i < x.extents.rank(); ++i) inner *= x.extents[i];
  const auto unstable = [lane, rows, inner](std::span<const Tensor> in) -> Result<Tensors> {
    Tensor out = copy_of(in[1]);
    for (int64_t row = 0; row < rows; ++row) {
      std::vector<int64_t> places;
      for (int64_t i = 0; i < lane; ++i) places.push_back((row / inner * lane + i) * inner + row % inner);
      turn_ties(in[0], out, places);
    }
    return Tensors{out};
  };
  return b.add(DType::kI32, x.extents, {x, [order value]}, unstable);
}

Extents extents_of_index() {
  const FieldLimits* const limits = field();
  return limits == nullptr || limits->loops_take_one_element ? Extents{1} : Extents{};
}

NSArray<MPSGraphTensor*>* listed(NSArray<MPSGraphTensor*>* targets) {
  const FieldLimits* const limits = field();
  if (limits == nullptr || limits->results_in_order) return targets;
  NSMutableArray<MPSGraphTensor*>* turned = [NSMutableArray array];
  for (NSUInteger i = [targets count]; i-- > 0;) [turned addObject:[targets objectAtIndex:i]];
  return turned;
}

}  // namespace heddle::metal_double
