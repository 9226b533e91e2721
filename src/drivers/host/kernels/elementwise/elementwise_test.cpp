#include <limits>

#include "drivers/host/kernels/elementwise/blocks.h"
#include "drivers/host/kernels/elementwise/expression.h"
#include "drivers/host/kernels/kernel_check_fixture.h"

namespace heddle::host {
namespace {

using ir::Attributes;
using ir::DType;
using ir::Extents;
using ir::Tensor;

Check tolerance(DType dtype) {
  Check check;
  if (dtype == DType::kF16) check.relative = check.absolute = 2e-3;
  if (dtype == DType::kBF16) check.relative = check.absolute = 1e-2;
  return check;
}

struct Unary {
  const char* op;
  Attributes attributes;
  double low = -4;
  double high = 4;
};

const std::vector<Unary>& float_unaries() {
  static const std::vector<Unary> table = {
      {"Abs", {}},
      {"Neg", {}},
      {"Exp", {}, -20, 20},
      {"Log", {}, 1e-3, 50},
      {"Sqrt", {}, 0, 50},
      {"Rsqrt", {}, 0.01, 50},
      {"Reciprocal", {}, 0.5, 4},
      {"Square", {}},
      {"Erf", {}},
      {"Tanh", {}},
      {"Sigmoid", {}, -20, 20},
      {"Relu", {}},
      {"Floor", {}},
      {"Ceil", {}},
      {"Round", {}},
      {"Sign", {}},
      {"Sin", {}},
      {"Cos", {}},
      {"Softplus", {}, -20, 20},
      {"Softsign", {}},
      {"HardSigmoid", {}},
      {"HardSigmoid", {{"alpha", 0.3}, {"beta", 0.1}}},
      {"HardSwish", {}},
      {"LeakyRelu", {}},
      {"LeakyRelu", {{"alpha", 0.25}}},
      {"Elu", {}},
      {"Elu", {{"alpha", 2.0}}},
      {"Silu", {}},
      {"Gelu", {}},
      {"Gelu", {{"approximate", std::string("tanh")}}},
      {"Identity", {}},
      {"IsNaN", {}},
      {"IsInf", {}},
      {"Clip", {}},
      {"IsInf", {{"detect_negative", int64_t{0}}}},
      {"IsInf", {{"detect_positive", int64_t{0}}}},
  };
  return table;
}

TEST_CASE(
    "host kernels: unary operators agree with the reference for every float type and size around a block") {
  for (const Unary& unary : float_unaries()) {
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64}) {
      for (int64_t n : {0, 1, 15, 17, 511, 513, 1300}) {
        check_node(unary.op, {random_tensor(dtype, {n}, unary.low, unary.high)}, unary.attributes,
                   tolerance(dtype));
      }
    }
  }
}

TEST_CASE("unary operators are split over two threads") {
  for (const Unary& unary : float_unaries()) {
    check_node(unary.op, {random_tensor(DType::kF32, {7, 9001}, unary.low, unary.high)}, unary.attributes);
  }
}

TEST_CASE("host kernels: infinities, NaN, zeros and subnormals go through as in the reference") {
  const std::vector<double> special = {
      kInfinity, -kInfinity, kNan,   0.0,     -0.0, 1e-40, -1e-40, 1e-30, 88.0, 89.5, 120.0, -87.5, -95.0,
      -103.0,    -120.0,     3.4e38, -3.4e38, 1e-3, -1e-3, 9.3,    -9.3,  5.9,  6.1,  -5.9,  -6.1};
  for (const Unary& unary : float_unaries()) {
    for (DType dtype : {DType::kF32, DType::kF64}) {
      const auto n = static_cast<int64_t>(special.size());
      check_node(unary.op, {Tensor::of(dtype, {n}, std::span<const double>(special))}, unary.attributes);
    }
  }
}

TEST_CASE("host kernels: functions are accurate to a few units in the last place") {
  Check check;
  check.relative = 1e-6;
  check.absolute = 3e-7;
  for (const char* op : {"Exp", "Erf", "Tanh", "Sigmoid", "Gelu", "Silu", "Softplus", "Elu"}) {
    check_node(op, {random_tensor(DType::kF32, {20000}, -10, 10)}, {}, check);
  }
  check_node("Log", {random_tensor(DType::kF32, {20000}, 1e-6, 1e6)}, {}, check);
}

TEST_CASE("host kernels: integers wrap exactly at their width") {
  for (DType dtype : {DType::kI8, DType::kU8, DType::kI16, DType::kI32, DType::kI64}) {
    const std::vector<int64_t> values = {0,      1,         -1,        127,       128,       -128, 255, 32767,
                                         -32768, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 77,   -3};
    const Tensor x = Tensor::of(dtype, {15}, std::span<const int64_t>(values));
    const Tensor y = Tensor::of(dtype, {15, 1}, std::span<const int64_t>(values));
    for (const char* op : {"Abs", "Neg", "Sign", "Relu", "Square", "Identity", "Clip"}) check_node(op, {x});
    for (const char* op : {"Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Equal", "Less", "LessOrEqual",
                           "Greater", "GreaterOrEqual"}) {
      check_node(op, {x, y});
    }
    check_node("Mod", {x, y}, {{"fmod", int64_t{1}}});
    check_node("Pow", {x, random_tensor(dtype, {15, 1}, 0, 9)});
    check_node("Pow", {random_tensor(dtype, {15}, 0, 6), random_tensor(DType::kF32, {15}, 0, 3)});
  }
}

TEST_CASE("host kernels: binary operators broadcast as NumPy does") {
  const std::vector<std::pair<Extents, Extents>> shapes = {
      {{}, {}},
      {{1}, {}},
      {{5}, {5}},
      {{513}, {1}},
      {{1}, {700}},
      {{7, 300}, {300}},
      {{7, 300}, {7, 1}},
      {{7, 1}, {1, 300}},
      {{2, 3, 5, 7}, {3, 1, 7}},
      {{4, 1, 33, 1}, {1, 6, 1, 40}},
      {{0, 3}, {3}},
      {{2, 1}, {2, 0}},
      {{3, 64, 2}, {64, 1}},
      {{2, 12, 32, 32}, {2, 1, 1, 32}},
      {{2, 2, 2, 2, 2, 2, 2, 3}, {2, 1, 2, 1, 2, 1, 2, 1}},
      {{40, 1030}, {1030}},
      {{40, 1030}, {40, 1}},
  };
  for (const auto& [a, b] : shapes) {
    for (DType dtype : {DType::kF32, DType::kI64, DType::kF16}) {
      check_node("Sub", {random_tensor(dtype, a), random_tensor(dtype, b, -4, 4, 2)}, {}, tolerance(dtype));
      check_node("Sub", {random_tensor(dtype, b), random_tensor(dtype, a, -4, 4, 2)}, {}, tolerance(dtype));
    }
    check_node("Where", {random_tensor(DType::kBool, a), random_tensor(DType::kF32, b),
                         random_tensor(DType::kF32, {}, 1, 2)});
    check_node("Equal", {random_tensor(DType::kI32, a, 0, 3), random_tensor(DType::kI32, b, 0, 3, 2)});
  }
}

TEST_CASE("host kernels: every binary operator on every float type, with NaN and infinity on either side") {
  const std::vector<double> special = {kInfinity, -kInfinity, kNan, 0.0, 1.5, -2.0, 3.0};
  for (DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
    const Tensor row = Tensor::of(dtype, {7}, std::span<const double>(special));
    const Tensor column = Tensor::of(dtype, {7, 1}, std::span<const double>(special));
    for (const char* op : {"Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Equal", "Less", "LessOrEqual",
                           "Greater", "GreaterOrEqual"}) {
      check_node(op, {row, column}, {}, tolerance(dtype));
      check_node(op, {random_tensor(dtype, {37, 29}, 0.1, 3), random_tensor(dtype, {37, 29}, 0.1, 3, 5)}, {},
                 tolerance(dtype));
    }
    check_node("Mod", {random_tensor(dtype, {100}), random_tensor(dtype, {100}, 1, 3, 5)},
               {{"fmod", int64_t{1}}}, tolerance(dtype));
    check_node("PRelu", {random_tensor(dtype, {2, 5, 7}), random_tensor(dtype, {5, 1}, 0, 1)}, {},
               tolerance(dtype));
    for (double power : {2.0, 3.0, 0.5, 1.0, -1.0, 1.7}) {
      Check check = tolerance(dtype);
      check.constants = {1};
      check_node("Pow", {row, Tensor::scalar(dtype, power)}, {}, check);
    }
    check_node("Pow", {random_tensor(dtype, {50}, 0.1, 3), random_tensor(DType::kI64, {50}, 0, 3)}, {},
               tolerance(dtype));
    check_node("Max", {random_tensor(dtype, {3, 4}), random_tensor(dtype, {4}), random_tensor(dtype, {3, 1})},
               {}, tolerance(dtype));
    check_node("Min", {random_tensor(dtype, {3, 4})}, {}, tolerance(dtype));
    check_node("Clip", {random_tensor(dtype, {600}), Tensor::scalar(dtype, -1), Tensor::scalar(dtype, 2)}, {},
               tolerance(dtype));
    check_node("Clip", {row, Tensor(), random_tensor(dtype, {1}, 0.5, 1)}, {}, tolerance(dtype));
    check_node("Clip", {Tensor::scalar(dtype, 3), random_tensor(dtype, {1}, 4, 5)}, {}, tolerance(dtype));
  }
  for (const char* op : {"And", "Or", "Xor", "Equal"})
    check_node(op, {random_tensor(DType::kBool, {40}), random_tensor(DType::kBool, {9, 1})});
  check_node("Not", {random_tensor(DType::kBool, {700})});
  check_node("Where", {random_tensor(DType::kBool, {40}), random_tensor(DType::kU8, {40}, 0, 9),
                       random_tensor(DType::kU8, {3, 1}, 0, 9)});
  check_node("Where", {random_tensor(DType::kBool, {40}), random_tensor(DType::kBool, {40}),
                       random_tensor(DType::kBool, {3, 1})});
}

TEST_CASE("host kernels: Cast converts between all element types") {
  const std::vector<double> values = {0,     1,      -1,  1.5,   -2.5,  100.7, -100.7, 300,
                                      70000, -70000, 3e9, 65519, 65520, 1e-5,  0.1};
  for (int from = 0; from < ir::kDTypeCount; ++from) {
    for (int to = 0; to < ir::kDTypeCount; ++to) {
      const Tensor x = Tensor::of(static_cast<DType>(from), {15}, std::span<const double>(values));
      Check check = tolerance(static_cast<DType>(to));
      check.absolute = 0;
      check_node("Cast", {x}, {{"to", std::string(ir::name(static_cast<DType>(to)))}}, check);
    }
  }
}

TEST_CASE(
    "host kernels: the two 16-bit types round exactly as ir does, for all bit patterns and halfway between") {
  std::vector<float> wide;
  for (uint32_t h = 0; h < 65536; ++h) {
    const float x = ir::f16_to_f32(static_cast<uint16_t>(h));
    for (float y : {x, std::nextafter(x, 1e9f), x * 1.00024414f, ir::bf16_to_f32(static_cast<uint16_t>(h))})
      wide.push_back(y);
  }
  const auto n = static_cast<int64_t>(wide.size());
  std::vector<uint16_t> f16(wide.size()), bf16(wide.size());
  std::vector<float> back(wide.size());
  store_block(DType::kF16)({wide.data(), nullptr, nullptr, f16.data(), n, 0, 0});
  store_block(DType::kBF16)({wide.data(), nullptr, nullptr, bf16.data(), n, 0, 0});
  load_block(DType::kF16)({f16.data(), nullptr, nullptr, back.data(), n, 0, 0});
  int64_t wrong = 0;
  for (size_t i = 0; i < wide.size(); ++i) {
    const bool nan = std::isnan(wide[i]);
    wrong += nan ? !std::isnan(ir::f16_to_f32(f16[i])) : f16[i] != ir::f32_to_f16(wide[i]);
    wrong += nan ? !std::isnan(ir::bf16_to_f32(bf16[i])) : bf16[i] != ir::f32_to_bf16(wide[i]);
    wrong += !std::isnan(back[i]) && back[i] != ir::f16_to_f32(f16[i]);
  }
  CHECK(wrong == 0);
}

TEST_CASE("host kernels: an operator of sixteen bits takes one instruction, and one more that stores") {
  constexpr int64_t kElements = 700;
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
    Operand in, out;
    in.location = Operand::Location::kInput, out.location = Operand::Location::kOutput;
    in.dtype = out.dtype = dtype;
    in.extents = out.extents = {kElements};
    BlockProgram program(in.extents);
    Expression expression(program);
    const auto apply = [&](const char* op, const Expression::Term& term, const Attributes& attributes) {
      ir::Node node;
      node.op = ir::find_op(op);
      node.attributes = attributes;
      return require(expression.node(node, {term}));
    };
    const auto wide = apply("Cast", expression.operand(in), {{"to", std::string("f32")}});
    const auto relu = apply("Relu", wide, {});
    expression.result(apply("Cast", relu, {{"to", std::string(ir::name(dtype))}}), out);
    program.finish();
    CHECK(program.work() == kElements * (dtype == DType::kF32 ? 1 : 2));
  }
}

TEST_CASE("host kernels: an element's bits do not depend on its place in a block") {
  for (const char* op : {"Exp", "Log", "Tanh", "Erf", "Gelu", "Sigmoid", "Softplus", "Sin", "Pow", "Elu"}) {
    Kind kind = Kind::kF32;
    const BlockKernel run = find_block(op, Kind::kF32, &kind);
    const bool found = run != nullptr;
    REQUIRE(found);
    const Tensor x = random_tensor(DType::kF32, {64}, 0.1, 5);
    std::vector<float> whole(64), one(64);
    run({x.data(), x.data(), nullptr, whole.data(), 64, 1, 0});
    for (size_t i = 0; i < 64; ++i) run({x.as<float>() + i, x.as<float>() + i, nullptr, &one[i], 1, 1, 0});
    CHECK_MESSAGE(std::memcmp(whole.data(), one.data(), 256) == 0, op);
  }
}

std::shared_ptr<const ir::Graph> body_of(ir::Builder& builder) {
  auto graph = builder.take();
  REQUIRE_MESSAGE(graph.ok(), to_string(graph.status()));
  return std::make_shared<const ir::Graph>(std::move(*graph));
}

TEST_CASE("host kernels: a fused body of many registers and two outputs equals its nodes one by one") {
  for (const Extents& shape : {Extents{3, 5, 7}, Extents{2, 700, 40}, Extents{0, 5, 7}}) {
    ir::Builder b;
    const Extents row{shape[1], 1};
    const auto x = b.input("x", {DType::kF32, ir::to_shape(shape)});
    const auto y = b.input("y", {DType::kF32, ir::to_shape(row)});
    const auto c = b.constant(Tensor::scalar(DType::kF32, 0.25));
    std::vector<ir::ValueId> kept;
    for (int i = 0; i < 20; ++i)
      kept.push_back(*b.node(i % 2 == 0 ? "Add" : "Mul", {i < 2 ? x : kept.back(), i % 3 == 0 ? y : c}));
    ir::ValueId sum = kept[0];
    for (size_t i = 1; i < kept.size(); ++i) sum = *b.node("Add", {sum, kept[i]});
    const auto mask = *b.node("Greater", {sum, x});
    const auto chosen = *b.node("Where", {mask, sum, *b.node("Tanh", {x})});
    const auto small = *b.node("Sigmoid", {y});
    for (ir::ValueId id : {chosen, mask, small, x, chosen}) b.output(id);
    Check check;
    check.outputs = 5;
    check_node("Elementwise", {random_tensor(DType::kF32, shape), random_tensor(DType::kF32, row)},
               {{"body", body_of(b)}}, check);
  }
}

TEST_CASE(
    "host kernels: a fused body mixes types, wraps narrow integers and rounds where a Cast asks for it") {
  ir::Builder b;
  const auto x = b.input("x", {DType::kI8, {ir::Dim(900)}});
  const auto y = b.input("y", {DType::kF32, {ir::Dim(900)}});
  const auto wrapped = *b.node("Mul", {x, x});
  const auto half = *b.node("Div", {wrapped, b.constant(Tensor::scalar(DType::kI8, 3))});
  const auto real = *b.node("Cast", {half}, {{"to", std::string("f32")}});
  const auto rounded =
      *b.node("Cast", {*b.node("Cast", {y}, {{"to", std::string("f16")}})}, {{"to", std::string("f32")}});
  const auto sum = *b.node("Add", {real, rounded});
  const auto limits =
      b.constant(Tensor::of(DType::kF32, {2, 1}, std::span<const double>(std::vector<double>{-3, 7})));
  b.output(*b.node("Max", {sum, limits}));
  b.output(half);
  Check check;
  check.outputs = 2;
  check.absolute = 1e-6;
  check_node("Elementwise", {random_tensor(DType::kI8, {900}, -128, 127), random_tensor(DType::kF32, {900})},
             {{"body", body_of(b)}}, check);
}

}  // namespace
}  // namespace heddle::host
