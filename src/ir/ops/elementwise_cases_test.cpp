#include <cmath>
#include <limits>

#include "ir/builder.h"
#include "ir/ops/cases.h"

namespace heddle::ir {

namespace {

Case unary(std::string op, std::vector<double> x, std::vector<double> y, Attributes attributes = {}) {
  const Shape shape = {static_cast<int64_t>(x.size())};
  return {std::move(op), {f32(shape, std::move(x))}, std::move(attributes), {f32(shape, std::move(y))}};
}

// x [b, 1] against y [3]: both sides stretch.
Case binary(std::string op, std::vector<double> x, std::vector<double> y, std::vector<double> z) {
  return {
      std::move(op), {f32({kB, 1}, std::move(x)), f32({3}, std::move(y))}, {}, {f32({kB, 3}, std::move(z))}};
}
Case integers(std::string op, std::vector<double> x, std::vector<double> y, std::vector<double> z,
              Attributes a = {}) {
  const Shape shape = {static_cast<int64_t>(x.size())};
  return {std::move(op),
          {i32(shape, std::move(x)), i32(shape, std::move(y))},
          std::move(a),
          {i32(shape, std::move(z))}};
}
// u64 beyond what an i64 holds: 2^63 and its neighbours that a double holds.
Case wide(std::string op, std::vector<double> x, std::vector<double> y, std::vector<double> z, bool compares,
          Attributes a = {}) {
  const Shape shape = {static_cast<int64_t>(x.size())};
  Sample out{compares ? DType::kBool : DType::kU64, shape, std::move(z), {}};
  return {std::move(op),
          {{DType::kU64, shape, std::move(x), {}}, {DType::kU64, shape, std::move(y), {}}},
          std::move(a),
          {std::move(out)}};
}
Case compare(std::string op, std::vector<double> z) {
  return {std::move(op), {f32({3}, {1, 2, 3}), f32({}, {2})}, {}, {flags({3}, std::move(z))}};
}
Case follow(std::string op, std::vector<Dim> x, std::vector<Dim> y, std::vector<Dim> z) {
  return {std::move(op), {dims(std::move(x)), dims(std::move(y))}, {}, {dims(std::move(z))}};
}

std::shared_ptr<const Graph> chain_body() {
  Builder b("body");
  const ValueId x = b.input("x", {DType::kF32, {kB, 3}});
  const ValueId y = b.input("y", {DType::kF32, {3}});
  const ValueId two = b.constant(Tensor::scalar(DType::kF32, 2));
  const ValueId sum = b.node("Add", {x, y}).value();
  b.output(b.node("Mul", {sum, two}).value());
  b.output(b.node("Relu", {sum}).value());
  return std::make_shared<const Graph>(b.take().value());
}

void add_unary(std::vector<Case>& all) {
  const double e = std::exp(1.0);
  all.push_back(unary("Abs", {-2, 0, 3}, {2, 0, 3}));
  all.push_back(unary("Neg", {-2, 0, 3}, {2, 0, -3}));
  all.push_back(unary("Sign", {-2, 0, 3}, {-1, 0, 1}));
  all.push_back(unary("Relu", {-2, 0, 3, kNaN}, {0, 0, 3, kNaN}));
  all.push_back(unary("Square", {-2, 0, 3}, {4, 0, 9}));
  all.push_back(unary("Exp", {0, 1, -kInf}, {1, e, 0}));
  all.push_back(unary("Log", {1, e, 0, -1}, {0, 1, -kInf, kNaN}));
  all.push_back(unary("Sqrt", {0, 4, 2}, {0, 2, 1.41421356}));
  all.push_back(unary("Rsqrt", {1, 4, 16}, {1, 0.5, 0.25}));
  all.push_back(unary("Reciprocal", {1, 4, -2}, {1, 0.25, -0.5}));
  all.push_back(unary("Erf", {0, 1, -0.5}, {0, 0.84270079, -0.52049988}));
  all.push_back(unary("Tanh", {0, 1, -100}, {0, 0.76159416, -1}));
  all.push_back(unary("Sigmoid", {0, 2, -2}, {0.5, 0.88079708, 0.11920292}));
  all.push_back(unary("Floor", {1.5, -1.5, 2}, {1, -2, 2}));
  all.push_back(unary("Ceil", {1.5, -1.5, 2}, {2, -1, 2}));
  all.push_back(unary("Round", {0.5, 1.5, 2.5, -1.2}, {0, 2, 2, -1}));
  all.push_back(unary("Sin", {0, 1}, {0, 0.84147098}));
  all.push_back(unary("Cos", {0, 1}, {1, 0.54030231}));
  all.push_back(unary("Softplus", {0, 1, -1}, {0.69314718, 1.31326169, 0.31326169}));
  all.push_back(unary("Softsign", {0, 1, -3}, {0, 0.5, -0.75}));
  all.push_back(unary("HardSigmoid", {0, 1, 10, -10}, {0.5, 0.7, 1, 0}));
  all.push_back(unary("HardSigmoid", {0, 1}, {0.25, 0.75}, {{"alpha", 0.5}, {"beta", 0.25}}));
  all.push_back(unary("HardSwish", {0, 1, 4, -4}, {0, 0.66666667, 4, 0}));
  all.push_back(unary("LeakyRelu", {-2, 3}, {-0.02, 3}));
  all.push_back(unary("LeakyRelu", {-2, 3}, {-0.5, 3}, {{"alpha", 0.25}}));
  all.push_back(unary("Elu", {-1, 2}, {-0.63212056, 2}));
  all.push_back(unary("Silu", {0, 2, -1}, {0, 1.76159416, -0.26894142}));
  all.push_back(unary("Gelu", {-1, 0, 2}, {-0.15865525, 0, 1.95449974}));
  all.push_back(
      unary("Gelu", {-1, 0, 2}, {-0.15880801, 0, 1.95459769}, {{"approximate", std::string("tanh")}}));
  all.push_back(unary("Identity", {1, -2}, {1, -2}));
  all.push_back({"Neg", {{DType::kI8, {2}, {-128, 5}, {}}}, {}, {{DType::kI8, {2}, {-128, -5}, {}}}});
  all.push_back({"Identity", {dims({kB, 7})}, {}, {dims({kB, 7})}});
  all.push_back({"Neg", {dims({kB, 7})}, {}, {dims({Dim(-1) * kB, -7})}});
  all.push_back({"Abs", {i32({kB}, {-5, 5})}, {}, {i32({kB}, {5, 5})}});
  all.push_back({"Not", {flags({kB}, {1, 0})}, {}, {flags({kB}, {0, 1})}});
  all.push_back({"IsNaN", {f32({3}, {1, kNaN, kInf})}, {}, {flags({3}, {0, 1, 0})}});
  all.push_back({"IsInf", {f32({3}, {-kInf, kNaN, kInf})}, {}, {flags({3}, {1, 0, 1})}});
  all.push_back(
      {"IsInf", {f32({3}, {-kInf, kNaN, kInf})}, {{"detect_negative", int64_t{0}}}, {flags({3}, {0, 0, 1})}});
  all.push_back({"Cast",
                 {f32({kB, 2}, {1.9, -1.9, 0, 7})},
                 {{"to", std::string("i64")}},
                 {i64({kB, 2}, {1, -1, 0, 7})}});
  all.push_back(
      {"Cast", {i64({2}, {300, -1})}, {{"to", std::string("i8")}}, {{DType::kI8, {2}, {44, -1}, {}}}});
  all.push_back({"Cast", {i64({2}, {300, 0})}, {{"to", std::string("bool")}}, {flags({2}, {1, 0})}});
  all.push_back({"Cast", {dims({kB, 5})}, {{"to", std::string("i32")}}, {{DType::kI32, {2}, {}, {kB, 5}}}});
  all.push_back({"Clip",
                 {f32({kB, 2}, {-5, 0.5, 2, kNaN}), f32({}, {-1}), f32({}, {1})},
                 {},
                 {f32({kB, 2}, {-1, 0.5, 1, kNaN})}});
  all.push_back({"Clip", {i64({3}, {-5, 0, 9}), none(), number(4)}, {}, {i64({3}, {-5, 0, 4})}});
}

void add_binary(std::vector<Case>& all) {
  all.push_back(binary("Add", {1, 10}, {1, 2, 3}, {2, 3, 4, 11, 12, 13}));
  all.push_back(binary("Sub", {1, 10}, {1, 2, 3}, {0, -1, -2, 9, 8, 7}));
  all.push_back(binary("Mul", {1, 10}, {1, 2, 3}, {1, 2, 3, 10, 20, 30}));
  all.push_back(binary("Div", {1, 10}, {1, 2, 4}, {1, 0.5, 0.25, 10, 5, 2.5}));
  all.push_back(binary("Pow", {2, 3}, {0, 1, 2}, {1, 2, 4, 1, 3, 9}));
  all.push_back(binary("Mod", {5, -5}, {3, -3, 2.5}, {2, -1, 0, 1, -2, 0}));
  all.push_back(binary("Min", {2, 1}, {0, 1.5, kNaN}, {0, 1.5, kNaN, 0, 1, kNaN}));
  all.push_back(binary("Max", {2, 1}, {0, 1.5, kNaN}, {2, 2, kNaN, 1, 1.5, kNaN}));
  all.push_back(binary("PRelu", {-2, 3}, {1, 0.5, 0}, {-2, -1, 0, 3, 3, 3}));
  all.back().in[0] = f32({kB, 3}, {-2, -2, -2, 3, 3, 3});
  all.push_back(integers("Div", {7, -7, 7, 5}, {2, 2, -2, 0}, {3, -3, -3, 0}));
  all.push_back(integers("Mod", {7, -7, 7, 5}, {3, 3, -3, 0}, {1, 2, -2, 0}));
  all.push_back(integers("Mod", {7, -7, 7, 5}, {3, 3, -3, 0}, {1, -1, 1, 0}, {{"fmod", int64_t{1}}}));
  all.push_back(integers("Pow", {2, -3, 2, -1}, {10, 3, -1, -3}, {1024, -27, 0, -1}));
  all.push_back(integers("Add", {2147483647, 1}, {1, 1}, {-2147483648.0, 2}));
  all.push_back(integers("Min", {1, -4}, {2, -5}, {1, -5}));
  all.push_back(integers("Max", {1, -4}, {2, -5}, {2, -4}));
  const double top = 9223372036854775808.0;  // 2^63
  all.push_back(wide("Add", {top, 5}, {top / 2, 6}, {top + top / 2, 11}, false));
  all.push_back(wide("Sub", {0, 9}, {top, 5}, {top, 4}, false));
  all.push_back(wide("Div", {top, top + 2048, 7, 5}, {2, top, 2, 0}, {top / 2, 1, 3, 0}, false));
  all.push_back(wide("Mod", {top + 2048, 7, 5}, {top, 4, 0}, {2048, 3, 0}, false));
  all.push_back(wide("Pow", {2, 3, 1}, {63, 2, top}, {top, 9, 1}, false));
  all.push_back(wide("Min", {top, 4}, {2, 5}, {2, 4}, false));
  all.push_back(wide("Max", {top, 4}, {2, 5}, {top, 5}, false));
  all.push_back(wide("Less", {top, 4}, {2, 5}, {0, 1}, true));
  all.push_back(wide("LessOrEqual", {top, 4}, {top, 3}, {1, 0}, true));
  all.push_back(wide("Greater", {top, 4}, {2, 5}, {1, 0}, true));
  all.push_back(wide("GreaterOrEqual", {2, 4}, {top, 4}, {0, 1}, true));
  all.push_back(
      wide("BitShift", {top, 12}, {3, 2}, {top / 8, 3}, false, {{"direction", std::string("RIGHT")}}));
  all.push_back({"Max", {f32({2}, {1, 5}), f32({2}, {3, 2}), f32({}, {2})}, {}, {f32({2}, {3, 5})}});
  all.push_back(compare("Equal", {0, 1, 0}));
  all.push_back(compare("Less", {1, 0, 0}));
  all.push_back(compare("LessOrEqual", {1, 1, 0}));
  all.push_back(compare("Greater", {0, 0, 1}));
  all.push_back(compare("GreaterOrEqual", {0, 1, 1}));
  const Sample p = flags({4}, {0, 0, 1, 1});
  const Sample q = flags({4}, {0, 1, 0, 1});
  all.push_back({"And", {p, q}, {}, {flags({4}, {0, 0, 0, 1})}});
  all.push_back({"Or", {p, q}, {}, {flags({4}, {0, 1, 1, 1})}});
  all.push_back({"Xor", {p, q}, {}, {flags({4}, {0, 1, 1, 0})}});
  all.push_back(
      {"Where", {flags({kB, 1}, {1, 0}), f32({2}, {1, 2}), f32({}, {9})}, {}, {f32({kB, 2}, {1, 2, 9, 9})}});
  all.push_back({"Elementwise",
                 {f32({kB, 3}, {1, 2, 3, -4, -5, -6}), f32({3}, {1, 1, 1})},
                 {{"body", chain_body()}},
                 {f32({kB, 3}, {4, 6, 8, -6, -8, -10}), f32({kB, 3}, {2, 3, 4, 0, 0, 0})}});
}

// Shape arithmetic on symbols.
void add_followed(std::vector<Case>& all) {
  all.push_back(follow("Add", {kB, 1}, {kS, 2}, {kB + kS, 3}));
  all.push_back(follow("Sub", {kB, 4}, {1, 2}, {kB - 1, 2}));
  all.push_back(follow("Mul", {kB, 4}, {kS, 2}, {kB * kS, 8}));
  all.push_back(follow("Div", {kB * Dim(6), 7, -7}, {3, 2, 2}, {kB * Dim(2), 3, -3}));
  all.push_back(follow("Mod", {kB * Dim(6), 7}, {3, 4}, {0, 3}));
  all.push_back(follow("Min", {kB, 4}, {kB + 1, 2}, {kB, 2}));
  all.push_back(follow("Max", {kB, 4}, {0, 2}, {kB, 4}));
  const Sample yes_no = {DType::kBool, {2}, {}, {0, 1}};
  all.push_back({"Equal", {dims({kB, 7}), dims({-1, 7})}, {}, {yes_no}});
  all.push_back({"Less", {dims({kB, 6}), dims({kB, 7})}, {}, {yes_no}});
  all.push_back({"Greater", {dims({Dim(-1), kB}), dims({kB, -2})}, {}, {yes_no}});
  all.push_back({"LessOrEqual", {dims({kB + 1, 7}), dims({kB, 7})}, {}, {yes_no}});
  all.push_back({"GreaterOrEqual", {dims({-1, 7}), dims({kB, 7})}, {}, {yes_no}});
  all.push_back({"Not", {{DType::kBool, {2}, {}, {1, 0}}}, {}, {yes_no}});
  all.push_back(
      {"Where", {{DType::kBool, {2}, {}, {0, 1}}, dims({1, kS}), dims({kB, 4})}, {}, {dims({kB, kS})}});
}

}  // namespace

std::vector<Case> elementwise_cases() {
  std::vector<Case> all;
  add_unary(all);
  add_binary(all);
  add_followed(all);
  return all;
}

}  // namespace heddle::ir
