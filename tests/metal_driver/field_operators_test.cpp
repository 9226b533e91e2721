// Reductions, orders, indices and elements as the field met them; and arrays that are too large.
#include <cmath>

#include "field_fixture.h"

namespace heddle::metal::test {
namespace {

using conformance::I;
using conformance::index;
using conformance::ints;
using conformance::Is;
using conformance::scalar_i64;
using conformance::T;
using conformance::weight;

void as_it_is(Scale) {}
void rough_division(Scale s) { s.field.division_ulps = 3; }
void small_arrays(Scale s) { s.field.array_elements = s.limits.array_elements = 1000; }
void few_bytes(Scale s) { s.field.array_bytes = s.limits.array_bytes = 4000; }
void few_axes(Scale s) { s.field.array_axes = s.limits.array_axes = 4; }
void few_rows(Scale s) { s.field.wrong_sort_rows = 5, s.limits.sort_rows = 4; }
void short_sorts(Scale s) { s.field.wrong_i64_sort = 10; }

void any_array(MetalOptions& o) {
  o.limits->array_elements = o.limits->array_bytes = o.limits->array_axes = Limits::kNone;
}
void any_reduced(MetalOptions& o) { o.limits->reduced_axes = Limits::kNone; }
void narrow(MetalOptions& o) { o.limits->narrow_reductions = true; }
void any_extremes(MetalOptions& o) { o.limits->scatter_extreme_bits = Limits::kNone; }
void plain_sorts(MetalOptions& o) { o.limits->all_sorts = o.limits->stable_sorts = true; }
void any_rows(MetalOptions& o) { o.limits->sort_rows = Limits::kNone; }
void any_ordered(MetalOptions& o) { o.limits->ordered_axes = Limits::kNone; }
void lone_gathers(MetalOptions& o) { o.limits->lone_gathers = true; }
void bool_concats(MetalOptions& o) { o.limits->bool_concats = true; }
void i64_signs(MetalOptions& o) { o.limits->i64_signs = true; }
void plain_division(MetalOptions& o) { o.limits->exact_division = true; }

In fixed(DType dtype, Extents extents, Is values) {
  return {extents, 0, 1, dtype, false, std::move(values), false};
}
Case reduce(const char* op, Extents extents, Is axes) {
  return {op, {T(extents, -99, 99), ints(std::move(axes))}};
}
Case top_k(In x, I k, I axis, I largest) {
  return {"TopK", {std::move(x), ints({k})}, {{"axis", axis}, {"largest", largest}}, conformance::kAll, 2};
}
Case scatter(const char* reduction, Extents data, Is places) {
  const Extents given{static_cast<I>(places.size()), data[1]};
  Is all;
  for (const I place : places) all.insert(all.end(), static_cast<size_t>(data[1]), place);
  return {"ScatterElements",
          {T(data, -99, 99), fixed(DType::kI64, given, all), T(given, -99, 99)},
          {{"axis", I{0}}, {"reduction", std::string(reduction)}}};
}

constexpr I kHuge = I{1} << 62, kLeast = std::numeric_limits<I>::min();
const Is kDividends = {123456789, -123456789, 2147483647, -2147483648, 16777217, -16777219, 7, 0};
const Is kDivisors = {1, 7, -1, 3, 1, -1, 16777217, 5};
const Is kWideDividends = {kHuge + 1, -kHuge - 3, kLeast, kLeast + 1, 9007199254740993, 5, kHuge, -1};
const Is kWideDivisors = {1, 7, 3, -1, 1, kHuge, kHuge - 1, kLeast};

// Two of 40 elements make 1600.
Case much(const char* op, ir::Attributes attributes = {}) {
  return {op, {T({40, 1}, 0, 9), T({1, 40}, 1, 9)}, std::move(attributes)};
}

Case divide(DType dtype, const Is& x, const Is& y) {
  return {"Div", {fixed(dtype, {8}, x), fixed(dtype, {8}, y)}};
}

Status extremes_of_nan(device::Device& device) {
  ir::Builder b;
  const ir::ValueId x = b.input("x", {DType::kF32, ir::to_shape({4, 6})}),
                    y = b.input("y", {DType::kF32, ir::to_shape({4, 6})}),
                    axes = b.constant(ir::Tensor::of_i64({1}));
  for (const char* op : {"Max", "Min"}) b.output(*b.node(op, {x, y}));
  for (const char* op : {"ReduceMax", "ReduceMin"}) b.output(*b.node(op, {x, axes}));
  std::vector<ir::Tensor> inputs = {conformance::random_tensor(DType::kF32, {4, 6}, 1),
                                    conformance::random_tensor(DType::kF32, {4, 6}, 2)};
  for (ir::Tensor& input : inputs) input.set(&input == inputs.data() ? 3 : 8, std::nan(""));
  return check_graph(device, *b.take(), inputs);
}

}  // namespace

const std::vector<Row>& field_size_rows() {
  using enum Outcome;
  static const std::vector<Row> kRows = {
      {"array size", "more elements than an array has", kNewest, small_arrays,
       node({"Expand", {T({40, 1}), ints({40, 26})}}), refused, any_array},
      {"array size", "more bytes than an array has", kNewest, few_bytes,
       node({"Cast", {T({30, 30})}, {{"to", std::string("i64")}}}, DType::kI16), refused, any_array},
      {"array size", "an intermediate that nobody asked for", kNewest, small_arrays,
       node({"MatMul", {T({12, 12}), T({12, 12})}}, DType::kI32), refused, any_array},
      {"array size", "operands that are too large", kNewest, small_arrays, node({"Neg", {T({1001})}}),
       refused, any_array},
      {"array axes", "more axes than an array has", kNewest, few_axes, node({"Neg", {T({2, 1, 2, 1, 2})}}),
       refused, any_array},
      {"array axes", "a shape of more axes than an array has", kNewest, few_axes,
       node({"Reshape", {T({4, 4}), ints({2, 2, 1, 2, 2})}}), refused, any_array},
      {"refusals", "a refusal that ends the process", kNewest, small_arrays,
       node({"Tile", {T({600}), ints({2})}}), refused, any_array},
  };
  return kRows;
}

// What is made of little, by each operator of MPSGraph that does so.
const std::vector<Row>& field_made_rows() {
  using enum Outcome;
  static const std::vector<Row> kRows = {
      {"array size", "a product of little that makes much", kNewest, small_arrays,
       node({"MatMul", {T({40, 2}), T({2, 40})}}), refused, any_array},
      {"array size", "a convolution of little that makes much", kNewest, small_arrays,
       node({"Conv", {T({1, 1, 6, 6}), weight({40, 1, 3, 3})}, {{"pads", Is{1, 1, 1, 1}}}}), refused,
       any_array},
      {"array size", "a transposed convolution that makes much", kNewest, small_arrays,
       node({"ConvTranspose", {T({1, 1, 9}), weight({1, 9, 9})}, {{"strides", Is{16}}}}), refused, any_array},
      {"array size", "rows gathered often", kNewest, small_arrays,
       node({"Gather", {T({3, 2}), index({600}, -3, 3)}}), refused, any_array},
      {"array size", "points gathered often", kNewest, small_arrays,
       node({"GatherND", {T({3, 4}), index({300, 1}, -3, 3)}}), refused, any_array},
      {"array size", "parts that are too large together", kNewest, small_arrays,
       node({"Concat", {T({600}), T({600})}, {{"axis", I{0}}}}), refused, any_array},
      {"array size", "elements gathered into wider ones", kNewest, few_bytes,
       node({"GatherElements",
             {fixed(DType::kI64, {4}, {1, 2, 3, 4}), {{700}, 0, 4, DType::kI32, false, {}, false}}}),
       refused, any_array},
      {"array size", "places that are wider than what has them", kNewest, few_bytes,
       node({"Trilu", {T({40, 40})}}, DType::kI8), refused, any_array},
      {"array size", "remainders", kNewest, small_arrays, node(much("Mod", {{"fmod", I{1}}})), refused,
       any_array},
      {"array size", "bits of both", kNewest, small_arrays, node(much("BitwiseAnd"), DType::kI32), refused,
       any_array},
      {"array size", "bits of either", kNewest, small_arrays, node(much("BitwiseOr"), DType::kI32), refused,
       any_array},
      {"array size", "bits of one", kNewest, small_arrays, node(much("BitwiseXor"), DType::kI32), refused,
       any_array},
      {"array size", "bits shifted to the left", kNewest, small_arrays,
       node(much("BitShift", {{"direction", std::string("LEFT")}}), DType::kI32), refused, any_array},
      {"array size", "bits shifted to the right", kNewest, small_arrays,
       node(much("BitShift", {{"direction", std::string("RIGHT")}}), DType::kI32), refused, any_array},
  };
  return kRows;
}

const std::vector<Row>& field_reduction_rows() {
  using enum Outcome;
  static const std::vector<Row> kRows = {
      {"reduced axes", "the first of five axes", kNewest, as_it_is,
       node(reduce("ReduceSum", {3, 2, 2, 2, 2}, {0})), right, any_reduced},
      {"reduced axes", "every other of six axes", kNewest, as_it_is,
       node(reduce("ReduceMax", {2, 3, 2, 3, 2, 2}, {0, 2, 4})), right, any_reduced},
      {"reduced axes", "a mean", kNewest, as_it_is, node(reduce("ReduceMean", {3, 2, 2, 2, 2}, {0, 4})),
       right, any_reduced},
      {"reduced axes", "the place of the greatest", kNewest, as_it_is,
       node({"ArgMax", {T({3, 2, 2, 2, 2})}, {{"axis", I{0}}}}), right, any_reduced},
      {"reduced axes", "a softmax along the first of five axes", kNewest, as_it_is,
       node({"Softmax", {T({3, 2, 2, 2, 2})}, {{"axis", I{0}}}}), right, any_reduced},
      {"reduced axes", "a normalisation over five of six axes", kNewest, as_it_is,
       node({"LayerNormalization",
             {T({2, 3, 2, 1, 2, 2}), weight({3, 2, 1, 2, 2}), weight({3, 2, 1, 2, 2})},
             {{"axis", I{1}}},
             conformance::kFloats}),
       right, any_reduced},
      {"narrow reductions", "a sum of i8 that wraps", kNewest, as_it_is,
       node(reduce("ReduceSum", {3, 40}, {1}), DType::kI8), right, narrow},
      {"narrow reductions", "a product of u8", kNewest, as_it_is,
       node({"ReduceProd", {T({3, 9}, 1, 9), ints({1})}}, DType::kU8), right, narrow},
      {"narrow reductions", "a minimum of i16", kNewest, as_it_is,
       node(reduce("ReduceMin", {3, 40}, {0}), DType::kI16), right, narrow},
  };
  return kRows;
}

const std::vector<Row>& field_scatter_rows() {
  using enum Outcome;
  static const std::vector<Row> kRows = {
      {"scatter extremes", "the greatest of i32", kOldest, as_it_is,
       node(scatter("max", {5, 3}, {1, 4, 1, 1, 0, 4}), DType::kI32), right, any_extremes},
      {"scatter extremes", "the least of i8", kOldest, as_it_is,
       node(scatter("min", {5, 3}, {1, 4, 1, 1, 0, 4}), DType::kI8), right, any_extremes},
      {"scatter extremes", "the least of i32, far apart", kOldest, as_it_is,
       node({"ScatterElements",
             {fixed(DType::kI32, {3}, {2147483647, -2147483648, 5}),
              fixed(DType::kI64, {6}, {0, 0, 1, 2, 2, 2}),
              fixed(DType::kI32, {6}, {65536, 65535, 2147483647, -70000, -69999, 131072})},
             {{"reduction", std::string("min")}}}),
       right, any_extremes},
      {"scatter extremes", "the last of updates of one place", kOldest, as_it_is,
       node(scatter("none", {5, 3}, {1, 4, 1, 1, 0, 4}))},
      {"scatter extremes of i64", "the greatest of i64, far apart", kNewest, as_it_is,
       node({"ScatterElements",
             {fixed(DType::kI64, {3}, {kLeast, kHuge, -5}), fixed(DType::kI64, {6}, {0, 0, 1, 2, 2, 2}),
              fixed(DType::kI64, {6}, {kLeast + 1, kLeast + 65536, kHuge + 1, -6, -65541, -4})},
             {{"reduction", std::string("max")}}}),
       right, any_extremes},
  };
  return kRows;
}

const std::vector<Row>& field_order_rows() {
  using enum Outcome;
  static const std::vector<Row> kRows = {
      {"sort types", "an order of i16", kNewest, as_it_is,
       node(top_k(T({4, 21}, -999, 999), 5, 1, 1), DType::kI16), right, plain_sorts},
      {"sort types", "an order of u8", kNewest, as_it_is,
       node(top_k(T({4, 21}, 0, 255), 5, 1, 0), DType::kU8), right, plain_sorts},
      {"long sorts of i64",
       "a long order of i64",
       {15, 4, Chip::kM4},
       short_sorts,
       node(top_k(T({3, 40}, -1e18, 1e18), 40, 1, 1), DType::kI64),
       right,
       plain_sorts,
       wrong},
      {"sort rows", "orders of many rows", kNewest, few_rows, node(top_k(T({9, 6}), 6, 1, 1)), right,
       any_rows, wrong},
      {"sort ties", "an order of equals", kNewest, as_it_is,
       node(top_k(T({3, 50}, -2, 2), 50, 1, 1), DType::kI32), right, plain_sorts, wrong},
      {"sort ties", "zeros of both signs", kNewest, as_it_is,
       node(top_k(fixed(DType::kF32, {2, 6}, {0, 1, 0, -1, 0, 0, 3, 3, 3, 3, 3, 3}), 6, 1, 0)), right,
       plain_sorts, wrong},
      {"top k", "more than sixteen", kNewest, as_it_is, node(top_k(T({40, 3}), 20, 0, 1))},
      {"ordered axes", "a running sum along the first of five axes", kNewest, as_it_is,
       node({"CumSum", {T({3, 2, 2, 2, 2}), scalar_i64(0)}, {{"reverse", I{1}}}}), right, any_ordered},
      {"ordered axes", "a running product along the first of six axes", kNewest, as_it_is,
       node({"CumProd", {T({3, 2, 1, 2, 2, 2}), scalar_i64(0)}, {{"exclusive", I{1}}}}), right, any_ordered},
      {"ordered axes", "an order along the first of five axes", kNewest, as_it_is,
       node(top_k(T({7, 2, 2, 2, 2}), 3, 0, 1))},
  };
  return kRows;
}

const std::vector<Row>& field_element_rows() {
  using enum Outcome;
  static const std::vector<Row> kRows = {
      {"lone gathers",
       "elements of one axis",
       {15, 1, Chip::kM4},
       as_it_is,
       node({"GatherElements", {T({7}), index({5}, -7, 7)}}),
       right,
       lone_gathers},
      {"lone gathers",
       "elements of the only axis above one",
       {15, 1, Chip::kM4},
       as_it_is,
       node({"GatherElements", {T({1, 7, 1}), index({1, 5, 1}, -7, 7)}, {{"axis", I{1}}}}),
       right,
       lone_gathers},
      {"lone gathers",
       "elements of an axis of one",
       {15, 1, Chip::kM4},
       as_it_is,
       node({"GatherElements", {T({7, 1}), index({7, 3}, -1, 1)}, {{"axis", I{1}}}}),
       right,
       lone_gathers},
      {"bool concatenation", "parts of bool", kNewest, as_it_is,
       node({"Concat", {T({2, 3}), T({2, 1})}, {{"axis", I{1}}}}, DType::kBool), right, bool_concats},
      {"sign of i64", "signs", kNewest, as_it_is,
       node({"Sign", {fixed(DType::kI64, {5}, {kLeast, -3, 0, 1, kHuge})}}), right, i64_signs},
      {"integer division", "quotients of i32", kNewest, rough_division,
       node(divide(DType::kI32, kDividends, kDivisors)), right, plain_division, wrong},
      {"integer division", "quotients of i64", kNewest, rough_division,
       node(divide(DType::kI64, kWideDividends, kWideDivisors)), right, plain_division, wrong},
      {"integer division", "remainders", kNewest, rough_division,
       node({"Mod", {fixed(DType::kI32, {8}, kDividends), fixed(DType::kI32, {8}, kDivisors)}}), right,
       plain_division, wrong},
      {"integer division", "all quotients of bytes", kNewest, rough_division,
       node({"Div", {T({256, 1}, -128, 128), T({1, 256}, -128, 128)}}, DType::kI8)},
      {"NaN in extremes", "NaN beside numbers", kNewest, as_it_is, extremes_of_nan},
      {"padding of bool", "bool with a border", kNewest, as_it_is,
       node({"Pad", {T({2, 3}), ints({1, 0, 2, 1})}}, DType::kBool)},
      {"averages at the edge", "windows that reach out", kNewest, as_it_is,
       node({"AveragePool",
             {T({1, 2, 5, 6})},
             {{"kernel_shape", Is{2, 3}}, {"strides", Is{2, 2}}, {"ceil_mode", I{1}}}})},
  };
  return kRows;
}

namespace {

TEST_CASE("arrays as the field met them: what is too large is refused before MPSGraph ends the process") {
  check_rows(field_size_rows);
  check_rows(field_made_rows);
}

TEST_CASE("reductions as the field met them: right with what the driver does, dead without") {
  check_rows(field_reduction_rows);
}

TEST_CASE("scatters as the field met them: right with what the driver does, dead without") {
  check_rows(field_scatter_rows);
}

TEST_CASE("orders and scans as the field met them: right with what the driver does, wrong or dead without") {
  check_rows(field_order_rows);
}

TEST_CASE("elements as the field met them: right with what the driver does, wrong or dead without") {
  check_rows(field_element_rows);
}

}  // namespace
}  // namespace heddle::metal::test
