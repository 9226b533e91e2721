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

using MakeChain = ir::ValueId (*)(ir::Builder& b, const std::vector<ir::ValueId>& in);

// A chain whose body `make` adds to: its inputs have the types that the case gives them.
void add_chain(std::vector<Case>& cases, DType t, const std::vector<In>& in, MakeChain make) {
  ir::Builder b("body");
  std::vector<ir::ValueId> ids;
  for (const In& each : in)
    ids.push_back(
        b.input(text("in", ids.size()), ir::Tensor::zeros(each.dtype.value_or(t), each.extents).type()));
  b.output(make(b, ids));
  cases.push_back({"Elementwise", in, {{"body", std::make_shared<const ir::Graph>(*b.take())}}, {t}});
}

ir::ValueId of_floats(ir::Builder& b, const std::vector<ir::ValueId>& in) {
  ir::ValueId y = *b.node("Add", {in[0], in[1]});
  y = *b.node("Mul", {*b.node("Tanh", {y}), in[2]});
  y = *b.node("Max", {y, in[0], in[3]});
  return *b.node("Gelu", {*b.node("Sub", {y, in[3]})});
}

ir::ValueId of_bools(ir::Builder& b, const std::vector<ir::ValueId>& in) {
  const ir::ValueId less = *b.node("Less", {in[0], in[1]}), either = *b.node("Or", {less, in[2]}),
                    both = *b.node("And", {*b.node("Xor", {either, in[3]}), *b.node("Not", {less})});
  return *b.node("Where", {both, *b.node("Neg", {in[0]}), in[1]});
}

ir::ValueId of_integers(ir::Builder& b, const std::vector<ir::ValueId>& in) {
  const ir::ValueId sum = *b.node("Add", {in[0], in[1]});
  const ir::ValueId rest = *b.node("Mod", {*b.node("Mul", {sum, in[2]}), in[1]});
  return *b.node("Where", {*b.node("Greater", {rest, in[2]}), rest, *b.node("Div", {in[0], in[1]})});
}

ir::ValueId of_casts(ir::Builder& b, const std::vector<ir::ValueId>& in) {
  const auto cast = [&](ir::ValueId x, const char* to) {
    return *b.node("Cast", {x}, {{"to", std::string(to)}});
  };
  const ir::ValueId small = cast(*b.node("Mul", {in[0], in[0]}), "i8"), masked = cast(in[1], "f32");
  const ir::ValueId f = *b.node("Add", {cast(small, "f32"), *b.node("Sub", {masked, cast(in[2], "f32")})});
  return cast(*b.node("Abs", {f}), "i64");
}

// Chains of several operators, with operands of the result's shape, rows, columns, planes and one element.
void add_chains(std::vector<Case>& cases) {
  for (const Extents& e : {Extents{2, 6, 8}, Extents{3, 5, 7}, Extents{4, 33, 65}, Extents{3, 24, 64}}) {
    const Extents row{e[2]}, column{e[1], 1}, plane{e[0], 1, 1}, ends{e[0], 1, e[2]};
    for (const DType t : kFloats) {
      add_chain(cases, t, {T(e), T(row), T(column), T(plane)}, of_floats);
      add_chain(cases, t, {T(row), T(column), T(e), T({})}, of_floats);
      add_chain(cases, t, {T(e), T(ends), bools(column), bools(row)}, of_bools);
    }
    for (const DType t : {DType::kI8, DType::kU8, DType::kI16, DType::kI32, DType::kI64}) {
      add_chain(cases, t, {T(e, 0, 100), T(row, 1, 9), T(column, 0, 5)}, of_integers);
      add_chain(cases, t, {T(e, 0, 100), T(ends, 1, 9), bools(column), bools(row)},
                [](ir::Builder& b, const std::vector<ir::ValueId>& in) {
                  return *b.node("Or", {*b.node("Less", {in[0], in[1]}), *b.node("And", {in[2], in[3]})});
                });
    }
    add_chain(cases, DType::kF32, {T(e), index(row, -9, 9), bools(column)}, of_casts);
  }
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
  add_chains(cases);
}

}  // namespace heddle::conformance
