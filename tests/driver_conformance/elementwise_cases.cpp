#include "ir/builder.h"
#include "op_cases_fixture.h"

namespace heddle::conformance {
namespace {

void add_unary(std::vector<Case>& cases) {
  struct Unary {
    const char* op;
    double low, high;
    const std::vector<DType>& dtypes;
    ir::Attributes attributes = {};
  };
  const std::vector<Unary> table = {
      {"Abs", -100, 100, kSigned},
      {"Neg", -100, 100, kSigned},
      {"Exp", -4, 4, kFloats},
      {"Log", 0.1, 9, kFloats},
      {"Sqrt", 0, 9, kFloats},
      {"Rsqrt", 0.1, 9, kFloats},
      {"Reciprocal", 0.5, 9, kFloats},
      {"Square", -5, 5, kFloats},
      {"Erf", -3, 3, kFloats},
      {"Tanh", -3, 3, kFloats},
      {"Sigmoid", -6, 6, kFloats},
      {"Relu", -3, 3, kSigned},
      {"Floor", -9, 9, kFloats},
      {"Ceil", -9, 9, kFloats},
      {"Round", -9, 9, kFloats},
      {"Sign", -3, 3, kSigned},
      {"Sin", -6, 6, kFloats},
      {"Cos", -6, 6, kFloats},
      {"Not", -1, 1, kBools},
      {"IsNaN", -1, 1, kFloats},
      {"IsInf", -1, 1, kFloats},
      {"Softplus", -6, 6, kFloats},
      {"Softsign", -6, 6, kFloats},
      {"HardSigmoid", -6, 6, kFloats, {{"alpha", 0.3}, {"beta", 0.4}}},
      {"HardSwish", -6, 6, kFloats},
      {"LeakyRelu", -3, 3, kFloats, {{"alpha", 0.2}}},
      {"Elu", -3, 3, kFloats, {{"alpha", 1.5}}},
      {"Silu", -6, 6, kFloats},
      {"Gelu", -6, 6, kFloats},
      {"Gelu", -6, 6, kFloats, {{"approximate", std::string("tanh")}}},
      {"Identity", -9, 9, kAll},
  };
  for (const Unary& u : table) {
    for (const Extents& extents : {Extents{}, Extents{3, 5, 7}, Extents{0, 4}, Extents{1031}}) {
      cases.push_back({u.op, {T(extents, u.low, u.high)}, u.attributes, u.dtypes});
    }
  }
  for (const char* to : {"f32", "f16", "bf16", "f64", "i8", "u8", "i16", "i32", "i64", "bool"}) {
    cases.push_back({"Cast", {T({5, 9}, 0, 100)}, {{"to", std::string(to)}}, kAll});
  }
  cases.push_back({"Clip", {T({4, 9}, -50, 50), scalar(3), scalar(20)}, {}, kNumbers});
  cases.push_back({"Clip", {T({4, 9}), none(), scalar(1)}, {}, kFloats});
  cases.push_back({"Clip", {T({4, 9})}, {}, kFloats});
}

void add_binary(std::vector<Case>& cases) {
  struct Binary {
    const char* op;
    double low, high;
    const std::vector<DType>& dtypes;
  };
  const std::vector<Binary> table = {
      {"Add", 0, 50, kNumbers},        {"Sub", 0, 50, kNumbers},    {"Mul", 0, 10, kNumbers},
      {"Div", 1, 50, kNumbers},        {"Pow", 0.5, 4, kFloats},    {"Min", -9, 9, kSigned},
      {"Max", -9, 9, kSigned},         {"Equal", 0, 3, kAll},       {"Less", -3, 3, kSigned},
      {"LessOrEqual", -3, 3, kSigned}, {"Greater", -3, 3, kSigned}, {"GreaterOrEqual", -3, 3, kSigned},
      {"And", -1, 1, kBools},          {"Or", -1, 1, kBools},       {"Xor", -1, 1, kBools},
      {"PRelu", -3, 3, kFloats},
  };
  for (const Binary& b : table) {
    cases.push_back({b.op, {T({3, 17}, b.low, b.high), T({3, 17}, b.low, b.high)}, {}, b.dtypes});
    cases.push_back({b.op, {T({2, 1, 5}, b.low, b.high), T({1, 5}, b.low, b.high)}, {}, b.dtypes});
    cases.push_back({b.op, {T({4, 3}, b.low, b.high), T({}, b.low, b.high)}, {}, b.dtypes});
    cases.push_back({b.op, {T({0, 3}, b.low, b.high), T({3}, b.low, b.high)}, {}, b.dtypes});
    if (b.op != std::string_view("PRelu")) {
      cases.push_back({b.op, {T({1, 6}, b.low, b.high), T({2, 5, 1}, b.low, b.high)}, {}, b.dtypes});
    }
  }
  cases.push_back(
      {"Mod", {T({3, 9}, 1, 90), T({3, 9}, 1, 9)}, {}, {DType::kI8, DType::kU8, DType::kI32, DType::kI64}});
  cases.push_back({"Mod", {T({3, 9}, -90, 90), T({9}, 1, 9)}, {}, kFloats});
  cases.push_back({"Mod", {T({3, 9}, -90, 90), T({9}, 1, 9)}, {{"fmod", int64_t{1}}}, kFloats});
  cases.push_back({"Max", {T({3, 4}), T({4}), T({3, 1})}, {}, kSigned});
  cases.push_back({"Min", {T({3, 4})}, {}, kFloats});
  cases.push_back({"Where", {bools({3, 1}), T({3, 4}), T({4})}, {}, kAll});
  cases.push_back({"Where", {bools({2, 3, 4}), T({}), T({2, 1, 4})}, {}, kAll});
}

// Unsigned integers, also where their highest bit is set: an i64 kernel would take it for a sign.
void add_unsigned(std::vector<Case>& cases) {
  const std::vector<DType> all = {DType::kU16, DType::kU32, DType::kU64};
  struct Binary {
    const char* op;
    ir::Attributes attributes = {};
  };
  const std::vector<Binary> table = {
      {"Add"},
      {"Sub"},
      {"Mul"},
      {"Div"},
      {"Mod"},
      {"Pow"},
      {"Min"},
      {"Max"},
      {"Equal"},
      {"Less"},
      {"LessOrEqual"},
      {"Greater"},
      {"GreaterOrEqual"},
      {"BitwiseAnd"},
      {"BitwiseOr"},
      {"BitwiseXor"},
      {"BitShift", {{"direction", std::string("LEFT")}}},
      {"BitShift", {{"direction", std::string("RIGHT")}}},
  };
  struct Range {
    double low, high;
    DType dtype;
  };
  for (const Range& range : {Range{0, 65536, DType::kU16},
                             {0, 4294967296.0, DType::kU32},
                             {9.2e18, 1.8e19, DType::kU64},
                             {0, 50, DType::kU64}}) {
    for (const Binary& b : table) {
      const bool shift = b.op == std::string_view("BitShift") || b.op == std::string_view("Pow");
      const double low = shift ? 0 : range.low, high = shift ? 20 : range.high;
      cases.push_back(
          {b.op, {T({3, 17}, range.low, range.high), T({3, 17}, low, high)}, b.attributes, {range.dtype}});
      cases.push_back(
          {b.op, {T({4, 3}, range.low, range.high), T({}, low, high)}, b.attributes, {range.dtype}});
    }
    cases.push_back({"BitwiseNot", {T({5, 9}, range.low, range.high)}, {}, {range.dtype}});
    cases.push_back({"TopK", {T({3, 17}, range.low, range.high), ints({4})}, {}, {range.dtype}, 2});
    for (const char* to : {"f32", "f64", "i64", "u8", "u16", "u32", "u64", "bool"}) {
      cases.push_back({"Cast", {T({5, 9}, range.low, range.high)}, {{"to", std::string(to)}}, {range.dtype}});
    }
  }
  for (const char* to : {"u16", "u32", "u64"}) {
    cases.push_back({"Cast", {T({5, 9}, 0, 100)}, {{"to", std::string(to)}}, kAll});
  }
  cases.push_back({"Where", {bools({3, 1}), T({3, 4}, 0, 99), T({4}, 0, 99)}, {}, all});
  cases.push_back({"Identity", {T({3, 4}, 0, 99)}, {}, all});
  cases.push_back({"Transpose", {T({3, 4}, 0, 99)}, {{"perm", std::vector<int64_t>{1, 0}}}, all});
  cases.push_back({"Concat", {T({3, 4}, 0, 99), T({2, 4}, 0, 99)}, {{"axis", int64_t{0}}}, all});
  cases.push_back({"ReduceSum", {T({3, 4}, 0, 99)}, {}, {DType::kU16, DType::kU32}});
  cases.push_back({"ReduceMax", {T({3, 4}, 0, 65536)}, {}, {DType::kU16, DType::kU32}});
}

ir::Attribute chain() {
  ir::Builder b("body");
  const ir::ValueId x = b.input("x", {DType::kF32, {6, 5}}), y = b.input("y", {DType::kF32, {5}});
  const ir::ValueId sum = *b.node("Add", {x, y});
  const ir::ValueId half = b.constant(ir::Tensor::scalar(DType::kF32, 0.5));
  const ir::ValueId scaled = *b.node("Mul", {*b.node("Tanh", {sum}), half});
  b.output(*b.node("Sub", {scaled, x}));
  b.output(sum);
  return std::make_shared<const ir::Graph>(*b.take());
}

}  // namespace

void add_elementwise_cases(std::vector<Case>& cases) {
  add_unary(cases);
  add_binary(cases);
  add_unsigned(cases);
  cases.push_back({"Elementwise", {T({6, 5}), T({5})}, {{"body", chain()}}, kF32, 2});
}

}  // namespace heddle::conformance
