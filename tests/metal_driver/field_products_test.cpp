// Products, attention and convolutions as the field met them.
#include "field_fixture.h"

namespace heddle::metal::test {
namespace {

using conformance::bools;
using conformance::T;
using conformance::weight;
using Is = std::vector<int64_t>;

constexpr FieldMac kOldM4{14, 3, Chip::kM4}, kSequoia{15, 0, Chip::kM4};

void few_terms(Scale s) { s.field.wrong_terms = 40, s.limits.product_terms = 39; }
void small_extents(Scale s) { s.field.product_extent = s.limits.product_extent = 30; }
void small_images(Scale s) { s.field.convolution_extent = s.limits.convolution_extent = 20; }

void no_terms(MetalOptions& o) { o.limits->product_terms = Limits::kNone; }
void no_extents(MetalOptions& o) { o.limits->product_extent = Limits::kNone; }
void no_axes(MetalOptions& o) { o.limits->product_axes = Limits::kNone; }
void no_images(MetalOptions& o) { o.limits->convolution_extent = Limits::kNone; }
void sound_attention(MetalOptions& o) { o.limits->sound_attention = true; }

In unit(Extents extents) { return T(extents, -1, 1); }
In unit_weight(Extents extents) { return weight(extents, -1, 1); }

// softmax(x y) z, and no more than that.
Status shares(device::Device& device) {
  ir::Builder b;
  const auto input = [&](const char* name, const Extents& extents) {
    return b.input(name, {DType::kF32, ir::to_shape(extents)});
  };
  const ir::ValueId scores = *b.node("MatMul", {input("x", {2, 3, 4}), input("y", {2, 4, 5})});
  b.output(*b.node("MatMul", {*b.node("Softmax", {scores}), input("z", {2, 5, 6})}));
  const ir::Graph graph = *b.take();
  const std::vector<ir::Tensor> inputs = {conformance::random_tensor(DType::kF32, {2, 3, 4}, 1),
                                          conformance::random_tensor(DType::kF32, {2, 4, 5}, 2),
                                          conformance::random_tensor(DType::kF32, {2, 5, 6}, 3)};
  return check_graph(device, graph, inputs);
}

Case attention(std::vector<In> in) {
  return {"Attention", std::move(in), {{"num_heads", int64_t{2}}}, conformance::kF32};
}
Case conv(In x, In w, ir::Attributes attributes = {}) {
  return {"Conv", {std::move(x), std::move(w)}, std::move(attributes), conformance::kF32};
}
const ir::Attributes kWide = {{"pads", Is{3, 2}}, {"strides", Is{2}}, {"dilations", Is{2}}};

}  // namespace

const std::vector<Row>& field_product_rows() {
  static const std::vector<Row> kRows = {
      {"product terms",
       "a product",
       {26, 6, Chip::kM2},
       few_terms,
       node({"MatMul", {unit({20, 100}), unit({100, 18})}}),
       Outcome::right,
       no_terms,
       Outcome::wrong},
      {"product terms", "products in a batch", kOldest, few_terms,
       node({"MatMul", {unit({2, 17, 81}), unit({2, 81, 16})}}), Outcome::right, no_terms, Outcome::wrong},
      {"product terms", "a projection", kOldest, few_terms,
       node({"Linear", {unit({16, 40}), unit_weight({40, 16})}}), Outcome::right, no_terms, Outcome::wrong},
      {"product extents", "many rows", kOldM4, small_extents, node({"MatMul", {unit({70, 8}), unit({8, 9})}}),
       Outcome::right, no_extents, Outcome::wrong},
      {"product extents", "many columns", kOldM4, small_extents,
       node({"MatMul", {unit({7, 8}), unit({8, 61})}}), Outcome::right, no_extents, Outcome::wrong},
      {"product extents", "many terms", kOldM4, small_extents,
       node({"MatMul", {unit({3, 7, 90}), unit({3, 90, 5})}}), Outcome::right, no_extents, Outcome::wrong},
      {"product extents", "many of all", kOldM4, small_extents,
       node({"Gemm", {unit({61, 62}), unit({62, 64})}}), Outcome::right, no_extents, Outcome::wrong},
      {"product axes", "five axes, of which some broadcast", kOldest, [](Scale) {},
       node({"MatMul", {unit({2, 1, 2, 3, 4}), unit({1, 3, 1, 4, 5})}}), Outcome::right, no_axes},
      {"product axes", "six axes by a matrix", kOldest, [](Scale) {},
       node({"MatMul", {unit({2, 1, 2, 2, 3, 4}), unit({4, 5})}}), Outcome::right, no_axes},
  };
  return kRows;
}

const std::vector<Row>& field_attention_rows() {
  static const std::vector<Row> kRows = {
      {"fused attention", "product, softmax, product", kSequoia, [](Scale) {}, shares, Outcome::right,
       sound_attention, Outcome::wrong},
      {"fused attention", "attention", kSequoia, [](Scale) {},
       node(attention({unit({2, 3, 8}), unit({2, 5, 8}), unit({2, 5, 8})})), Outcome::right, sound_attention,
       Outcome::wrong},
      {"softmax of nothing", "rows that may attend to nothing", kSequoia, [](Scale) {},
       node(attention({unit({2, 3, 8}),
                       unit({2, 5, 8}),
                       unit({2, 5, 8}),
                       {{2, 1, 3, 5}, 0, 1, DType::kBool, false, Is(30, 0), false}}))},
  };
  return kRows;
}

const std::vector<Row>& field_convolution_rows() {
  const auto row = [](const char* met_by, Case c, Outcome with = Outcome::right) {
    return Row{"convolution extents", met_by, {15, 0, Chip::kM1}, small_images,
               node(std::move(c)),    with,   no_images,          Outcome::wrong};
  };
  static const std::vector<Row> kRows = {
      row("a long sound", conv(unit({2, 3, 57}), unit_weight({4, 3, 4}), kWide)),
      row("a long batch", conv(unit({41, 2, 5, 5}), unit_weight({3, 2, 3, 3}))),
      row("a large image", conv(unit({1, 2, 43, 25}), unit_weight({3, 2, 3, 3}), {{"pads", Is{1, 2, 3, 4}}})),
      row("windows over padding alone",
          conv(unit({1, 2, 3}), unit_weight({3, 2, 2}), {{"pads", Is{45, 45}}})),
      row("many channels made", conv(unit({1, 2, 6, 6}), unit_weight({45, 2, 3, 3}))),
      row("many channels read", conv(unit({1, 45, 6, 6}), unit_weight({2, 45, 3, 3}))),
      row("many groups", conv(unit({1, 46, 6}), unit_weight({92, 2, 3}), {{"group", int64_t{23}}})),
      row("large groups", conv(unit({1, 50, 6}), unit_weight({44, 25, 3}), {{"group", int64_t{2}}})),
      row("a transposed convolution", {"ConvTranspose", {unit({1, 3, 30}), unit_weight({3, 2, 3})}},
          Outcome::refused),
      row("a window beyond it", conv(unit({1, 2, 40}), unit_weight({2, 2, 21})), Outcome::refused),
  };
  return kRows;
}

namespace {

TEST_CASE("products as the field met them: right with what the driver does, wrong or dead without") {
  check_rows(field_product_rows);
}

TEST_CASE("attention as the field met it: right with what the driver does, wrong without") {
  check_rows(field_attention_rows);
}

TEST_CASE("convolutions as the field met them: right or refused with what the driver does, wrong without") {
  check_rows(field_convolution_rows);
}

}  // namespace
}  // namespace heddle::metal::test
