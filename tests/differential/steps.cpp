// The steps of random graphs: what is added over the values so far.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "random_graph_fixture.h"
#include "tests/driver_conformance/op_cases_fixture.h"

namespace heddle::differential {

using ir::Attributes;
using ir::DType;
using ir::Extents;
using ir::Tensor;
using ir::ValueId;

namespace {

using Ints = std::vector<int64_t>;
using Words = std::string;

bool is_real(const Tensor& t) { return ir::is_float(t.dtype()); }
bool is_flag(const Tensor& t) { return t.dtype() == DType::kBool; }
bool has_axes(const Tensor& t) { return t.extents().rank() > 0; }
bool is_real_with_axes(const Tensor& t) { return is_real(t) && has_axes(t); }
bool is_image(const Tensor& t) {
  return is_real(t) && t.elements() > 0 && t.extents().rank() >= 3 && t.extents().rank() <= 5;
}

ValueId half(Sketch& s, DType dtype, double value) { return s.constant(Tensor::scalar(dtype, value)); }

// An operand that broadcasts against `with`: a value of the graph, or a new constant.
ValueId partner(Sketch& s, ValueId with, double low = -2, double high = 2) {
  Choices& c = s.choices();
  if (!c.one_in(3)) {
    const ValueId other = s.any();
    if (s.dtype(other) == s.dtype(with)) return other;
  }
  const Extents& extents = s.extents(with);
  const size_t dropped = c.below(extents.rank() + 1);
  Extents part;
  for (size_t axis = dropped; axis < extents.rank(); ++axis) part.push_back(c.one_in(3) ? 1 : extents[axis]);
  // Rows of a constant would bind the number of rows.
  if (dropped == 0 && extents.rank() > 0) part[0] = 1;
  return s.constant(s.random(s.dtype(with), part, low, high));
}

void add_unary(Sketch& s, ValueId x) {
  constexpr const char* kOps[] = {
      "Neg",    "Abs",   "Relu",  "Tanh",       "Sigmoid", "Exp",      "Erf",       "Silu",      "Softplus",
      "Square", "Sqrt",  "Rsqrt", "Reciprocal", "Log",     "Softsign", "Sin",       "Cos",       "Floor",
      "Ceil",   "Round", "Sign",  "IsNaN",      "IsInf",   "Identity", "HardSwish", "Atan",      "Sinh",
      "Acosh",  "Asin",  "Tan",   "Acos",       "Asinh",   "Atanh",    "Cosh",      "BitwiseNot"};
  Choices& c = s.choices();
  if (c.one_in(6)) {
    s.one("Gelu", {x}, c.one_in(2) ? Attributes{} : Attributes{{"approximate", Words("tanh")}});
    return;
  }
  if (c.one_in(6)) {
    s.one("LeakyRelu", {x}, {{"alpha", 0.25}});
    s.one("HardSigmoid", {x}, {{"alpha", 0.25}, {"beta", 0.5}});
    s.one("Elu", {x}, {{"alpha", 1.5}});
    return;
  }
  s.one(c.of(kOps), {x});
}

void add_cast(Sketch& s, ValueId x) {
  constexpr const char* kTypes[] = {"f32", "f16", "bf16", "f64", "i8",  "u8",  "i16",
                                    "i32", "i64", "u16",  "u32", "u64", "bool"};
  s.one("Cast", {x}, {{"to", Words(s.choices().of(kTypes))}});
}

}  // namespace

void add_pointwise(Sketch& s) {
  constexpr const char* kBinary[] = {"Add",   "Sub",        "Mul",       "Div",         "Min",
                                     "Max",   "Add",        "Mul",       "PRelu",       "Pow",
                                     "Equal", "Less",       "Greater",   "LessOrEqual", "GreaterOrEqual",
                                     "Mod",   "BitwiseAnd", "BitwiseOr", "BitwiseXor"};
  Choices& c = s.choices();
  const ValueId x = s.any();
  switch (c.below(6)) {
    case 0:
      return add_unary(s, x);
    case 1:
      return add_cast(s, x);
    case 2: {
      const ValueId flag = s.any(is_flag);
      if (flag == ir::kNoValue) {
        s.one("Greater", {x, partner(s, x)});
        return;
      }
      constexpr const char* kLogic[] = {"And", "Or", "Xor"};
      if (c.one_in(2)) s.one("Not", {flag});
      if (c.one_in(2)) s.one(c.of(kLogic), {flag, partner(s, flag)});
      s.one("Where", {flag, x, partner(s, x)});
      return;
    }
    case 3: {
      const ValueId low = half(s, s.dtype(x), 0), high = half(s, s.dtype(x), 1);
      s.one("Clip", c.one_in(2) ? std::vector{x, low, high} : std::vector{x, ir::kNoValue, high});
      return;
    }
    default: {
      const bool first = !c.one_in(4);
      const ValueId other = partner(s, x, 0.5, 3);
      s.one(c.of(kBinary), first ? std::vector{x, other} : std::vector{other, x});
      return;
    }
  }
}

namespace {

void add_reshape(Sketch& s, ValueId x) {
  Choices& c = s.choices();
  const Extents& e = s.extents(x);
  switch (c.below(5)) {
    case 0:
      s.one("Reshape", {x, s.ints({0, -1})});
      return;
    case 1:
      s.one("Flatten", {x}, {{"axis", int64_t{1}}});
      return;
    case 2:
      s.one("Unsqueeze", {x, s.ints({c.between(0, static_cast<int64_t>(e.rank()))})});
      return;
    case 3:
      for (size_t axis = 0; axis < e.rank(); ++axis) {
        if (e[axis] == 1 && axis > 0) {
          s.one("Squeeze", {x, s.ints({static_cast<int64_t>(axis)})});
          return;
        }
      }
      return;
    default: {
      if (e.rank() < 2) return;
      const int64_t last = e[e.rank() - 1];
      const int64_t part = last % 2 == 0 ? 2 : 1;
      Ints shape(e.rank() - 1, 0);
      shape.push_back(part);
      shape.push_back(last / part);
      s.one("Reshape", {x, s.ints(shape)});
    }
  }
}

void add_slice(Sketch& s, ValueId x, size_t axis) {
  Choices& c = s.choices();
  const int64_t extent = s.extents(x)[axis];
  const int64_t step = c.of({int64_t{1}, int64_t{1}, int64_t{2}, int64_t{-1}, int64_t{-2}});
  int64_t start = c.between(0, std::max<int64_t>(extent - 1, 0)), end = c.between(start, extent);
  if (step < 0) {
    start = extent - 1;
    end = c.between(-extent - 1, start);
  }
  s.one("Slice", {x, s.ints({start}), s.ints({end}), s.ints({static_cast<int64_t>(axis)}), s.ints({step})});
}

void add_gather(Sketch& s, ValueId x, size_t axis) {
  Choices& c = s.choices();
  const int64_t extent = s.extents(x)[axis];
  if (extent == 0) return;
  const auto a = static_cast<int64_t>(axis);
  const double low = static_cast<double>(-extent), high = static_cast<double>(extent - 1);
  switch (c.below(3)) {
    case 0:
      s.one("Gather", {x, s.constant(s.random(DType::kI64, {c.between(0, 3)}, low, high))}, {{"axis", a}});
      return;
    case 1:
      s.one("Gather", {x, s.constant(s.random(DType::kI64, {}, low, high))}, {{"axis", a}});
      return;
    default: {
      Extents extents = s.extents(x);
      extents[axis] = c.between(1, 3);
      s.one("GatherElements", {x, s.constant(s.random(DType::kI64, extents, low, high))}, {{"axis", a}});
    }
  }
}

void add_pad(Sketch& s, ValueId x) {
  Choices& c = s.choices();
  const size_t rank = s.extents(x).rank();
  Ints pads(2 * rank, 0);
  for (size_t i = 0; i < pads.size(); ++i) {
    if (i % rank != 0) pads[i] = c.between(-1, 2);
  }
  constexpr const char* kModes[] = {"constant", "edge", "reflect"};
  s.one("Pad", {x, s.ints(pads)}, {{"mode", Words(c.of(kModes))}});
}

void add_concat(Sketch& s, ValueId x, size_t axis) {
  std::vector<ValueId> parts = {x};
  for (int i = 0; i < 2; ++i) {
    const ValueId other = s.any();
    parts.push_back(s.dtype(other) == s.dtype(x) && s.extents(other).rank() == s.extents(x).rank() ? other
                                                                                                   : x);
  }
  s.one("Concat", parts, {{"axis", static_cast<int64_t>(axis)}});
}

}  // namespace

void add_movement(Sketch& s) {
  Choices& c = s.choices();
  const ValueId x = s.any(has_axes);
  if (x == ir::kNoValue) return;
  const Extents e = s.extents(x);
  const size_t axis = c.one_in(4) ? 0 : c.below(e.rank());
  const auto a = static_cast<int64_t>(axis);
  switch (c.below(10)) {
    case 0: {
      Ints perm(e.rank());
      std::iota(perm.begin(), perm.end(), 0);
      const size_t fixed = c.one_in(3) ? 0 : 1;
      for (size_t i = perm.size(); i > fixed + 1; --i)
        std::swap(perm[i - 1], perm[fixed + c.below(i - fixed)]);
      s.one("Transpose", {x}, {{"perm", perm}});
      return;
    }
    case 1:
      return add_reshape(s, x);
    case 2:
      return add_slice(s, x, axis);
    case 3:
      return add_gather(s, x, axis);
    case 4:
      return add_pad(s, x);
    case 5:
      return add_concat(s, x, axis);
    case 6: {
      const int64_t first = c.between(0, e[axis]);
      s.add("Split", {x, s.ints({first, e[axis] - first})}, {{"axis", a}}, 2);
      return;
    }
    case 7: {
      Ints repeats(e.rank(), 1);
      repeats[axis] = c.between(1, 3);
      s.one("Tile", {x, s.ints(repeats)});
      return;
    }
    case 8:
      s.one("Trilu", {x, s.constant(Tensor::scalar(DType::kI64, static_cast<double>(c.between(-1, 2))))},
            {{"upper", c.between(0, 1)}});
      return;
    default: {
      Ints shape(e.begin(), e.end());
      shape[0] = 1;
      shape.insert(shape.begin(), c.between(1, 2));
      s.one("Expand", {x, s.ints(shape)});
    }
  }
}

void add_reduction(Sketch& s) {
  Choices& c = s.choices();
  const ValueId x = s.any(has_axes);
  if (x == ir::kNoValue) return;
  const int64_t axis = c.between(c.one_in(4) ? 0 : std::min<int64_t>(1, s.extents(x).rank() - 1),
                                 static_cast<int64_t>(s.extents(x).rank()) - 1);
  constexpr const char* kReduce[] = {"ReduceSum", "ReduceMean", "ReduceMax",      "ReduceMin",
                                     "ReduceL2",  "ReduceProd", "ReduceSumSquare"};
  switch (c.below(6)) {
    case 0:
      s.one("Softmax", {x}, {{"axis", axis}});
      return;
    case 1:
      s.one(c.one_in(2) ? "ArgMax" : "ArgMin", {x},
            {{"axis", axis}, {"keepdims", c.between(0, 1)}, {"select_last_index", c.between(0, 1)}});
      return;
    case 2:
      s.one("CumSum", {x, s.constant(Tensor::scalar(DType::kI64, static_cast<double>(axis)))},
            {{"exclusive", c.between(0, 1)}, {"reverse", c.between(0, 1)}});
      return;
    case 3: {
      const int64_t extent = s.extents(x)[static_cast<size_t>(axis)];
      s.add("TopK", {x, s.ints({c.between(1, std::max<int64_t>(extent, 1))})},
            {{"axis", axis}, {"largest", c.between(0, 1)}}, 2);
      return;
    }
    default:
      s.one(c.of(kReduce), {x, s.ints({axis})}, {{"keepdims", c.between(0, 1)}});
  }
}

void add_product(Sketch& s) {
  Choices& c = s.choices();
  const ValueId x = s.any(has_axes);
  if (x == ir::kNoValue) return;
  const Extents& e = s.extents(x);
  const int64_t k = e[e.rank() - 1], n = c.between(1, 9);
  const DType t = s.dtype(x);
  switch (c.below(4)) {
    case 0: {  // of two values of the graph
      Ints perm(e.rank());
      std::iota(perm.begin(), perm.end(), 0);
      if (e.rank() < 2) return;
      std::swap(perm[e.rank() - 1], perm[e.rank() - 2]);
      const ValueId turned = s.one("Transpose", {x}, {{"perm", perm}});
      s.one("MatMul", {x, turned});
      return;
    }
    case 1: {
      const ValueId w = s.constant(s.random(t, {n, k}, -1, 1)), bias = s.constant(s.random(t, {n}));
      s.one("Gemm", {x, w, bias}, {{"transB", int64_t{1}}, {"alpha", 0.5}, {"beta", 2.0}});
      return;
    }
    case 2: {
      constexpr const char* kEnds[] = {"", "relu", "gelu", "tanh", "sigmoid", "silu"};
      const ValueId w = s.constant(s.random(t, {k, n}, -1, 1)), bias = s.constant(s.random(t, {n}));
      s.one("Linear", {x, w, bias}, {{"activation", Words(c.of(kEnds))}});
      return;
    }
    default:
      s.one("MatMul", {x, s.constant(s.random(t, {k, n}, -1, 1))});
  }
}

void add_window(Sketch& s) {
  Choices& c = s.choices();
  const ValueId x = s.any(is_image);
  if (x == ir::kNoValue) return;
  const Extents e = s.extents(x);
  const size_t spatial = e.rank() - 2;
  Ints kernel(spatial), pads(2 * spatial), strides(spatial);
  for (size_t i = 0; i < spatial; ++i) kernel[i] = c.between(1, std::min<int64_t>(3, e[i + 2]));
  for (int64_t& pad : pads) pad = c.between(0, 1);
  for (int64_t& stride : strides) stride = c.between(1, 2);
  const int64_t channels = e[1], group = c.one_in(3) ? channels : 1, out = group * c.between(1, 3);
  Extents weight{out, channels / std::max<int64_t>(group, 1)};
  Extents turned{channels, out / std::max<int64_t>(group, 1)};
  for (const int64_t extent : kernel) {
    weight.push_back(extent);
    turned.push_back(extent);
  }
  const DType t = s.dtype(x);
  const Attributes window = {{"kernel_shape", kernel}, {"pads", pads}, {"strides", strides}};
  Attributes grouped = window;
  grouped.set("group", group);
  switch (c.below(6)) {
    case 0:
      s.one("MaxPool", {x}, window);
      return;
    case 1:
      s.one("AveragePool", {x}, window);
      return;
    case 2:
      s.one(c.one_in(2) ? "GlobalAveragePool" : "GlobalMaxPool", {x});
      return;
    case 3:
      s.one("ConvTranspose", {x, s.constant(s.random(t, turned, -1, 1))}, grouped);
      return;
    default:
      s.one("Conv", {x, s.constant(s.random(t, weight, -1, 1)), s.constant(s.random(t, {out}))}, grouped);
  }
}

namespace {

void add_layer_norm(Sketch& s, ValueId x) {
  const DType t = s.dtype(x);
  const Extents& e = s.extents(x);
  const Extents last{e[e.rank() - 1]};
  if (s.choices().one_in(2)) {
    s.one("LayerNormalization", {x, s.constant(s.random(t, last)), s.constant(s.random(t, last))},
          {{"axis", int64_t{-1}}, {"epsilon", 0.125}});
    return;
  }
  const ValueId axis = s.ints({-1});
  const ValueId centred = s.one("Sub", {x, s.one("ReduceMean", {x, axis})});
  const ValueId square = s.one("Mul", {centred, centred});
  const ValueId variance = s.one("Add", {s.one("ReduceMean", {square, axis}), half(s, t, 0.125)});
  const ValueId normal = s.one("Div", {centred, s.one("Sqrt", {variance})});
  const ValueId scaled = s.one("Mul", {normal, s.constant(s.random(t, last))});
  s.one("Add", {scaled, s.constant(s.random(t, last))});
}

void add_gelu(Sketch& s, ValueId x) {
  const DType t = s.dtype(x);
  const ValueId erf = s.one("Erf", {s.one("Div", {x, half(s, t, 1.4142135623730951)})});
  s.one("Mul", {s.one("Mul", {x, s.one("Add", {erf, half(s, t, 1)})}), half(s, t, 0.5)});
}

void add_attention(Sketch& s, ValueId x) {
  const Extents& e = s.extents(x);
  if (e.rank() != 3) return;
  const DType t = s.dtype(x);
  const int64_t width = e[2], heads = width % 2 == 0 ? 2 : 1;
  const auto head = [&](Ints perm) {
    const ValueId flat = s.one("MatMul", {x, s.constant(s.random(t, {width, width}, -1, 1))});
    return s.one("Transpose", {s.one("Reshape", {flat, s.ints({0, 0, heads, width / heads})})},
                 {{"perm", std::move(perm)}});
  };
  const ValueId q = head({0, 2, 1, 3}), k = head({0, 2, 3, 1}), v = head({0, 2, 1, 3});
  const ValueId scores = s.one("Mul", {s.one("MatMul", {q, k}), half(s, t, 0.5)});
  const ValueId mixed = s.one("MatMul", {s.one("Softmax", {scores}, {{"axis", int64_t{-1}}}), v});
  s.one("Reshape", {s.one("Transpose", {mixed}, {{"perm", Ints{0, 2, 1, 3}}}), s.ints({0, 0, width})});
}

void add_conv_block(Sketch& s) {
  const ValueId x = s.any(is_image);
  if (x == ir::kNoValue) return;
  const Extents& e = s.extents(x);
  const DType t = s.dtype(x);
  const int64_t channels = s.choices().between(1, 4);
  Extents weight{channels, e[1]};
  while (weight.rank() < e.rank()) weight.push_back(1);
  const ValueId bias = s.choices().one_in(2) ? s.constant(s.random(t, {channels})) : ir::kNoValue;
  const ValueId conv = s.one("Conv", {x, s.constant(s.random(t, weight, -1, 1)), bias});
  const auto each = [&](double low, double high) { return s.constant(s.random(t, {channels}, low, high)); };
  const ValueId normal =
      s.one("BatchNormalization", {conv, each(-1, 1), each(-1, 1), each(-1, 1), each(0.5, 2)});
  s.one("Relu", {normal});
}

}  // namespace

// What the passes of src/plan look for.
void add_pattern(Sketch& s) {
  Choices& c = s.choices();
  const ValueId x = s.any(is_real_with_axes);
  if (x == ir::kNoValue) return;
  const Extents& e = s.extents(x);
  const DType t = s.dtype(x);
  switch (c.below(5)) {
    case 0:
      return add_layer_norm(s, x);
    case 1:
      return add_gelu(s, x);
    case 2:
      return add_attention(s, x);
    case 3:
      return add_conv_block(s);
    default: {
      const int64_t n = c.between(1, 6);
      const ValueId w = s.constant(s.random(t, {e[e.rank() - 1], n}, -1, 1));
      const ValueId sum = s.one("Add", {s.one("MatMul", {x, w}), s.constant(s.random(t, {n}))});
      constexpr const char* kEnds[] = {"Relu", "Tanh", "Sigmoid", "Silu", "Gelu", "HardSwish"};
      s.one(c.of(kEnds), {sum});
    }
  }
}

// A node as the drivers' conformance has it: every operator, also where no step above would come upon a form
// of it. An operand is a value of the graph that has its type, else an input or a constant.
void add_case(Sketch& s) {
  static const std::vector<conformance::Case> cases = [] {
    std::vector<conformance::Case> small;
    for (conformance::Case& each : conformance::all_cases()) {
      int64_t elements = 0;
      double most = 0;
      for (const conformance::In& in : each.in) {
        elements += in.extents.elements();
        most = std::max(most, in.high);
      }
      if (elements <= 2048 && most < 1e6) small.push_back(std::move(each));
    }
    return small;
  }();
  Choices& c = s.choices();
  const conformance::Case& one = c.of(cases);
  const DType t = c.of(one.dtypes);
  const bool constants = c.one_in(2);
  std::vector<ValueId> operands;
  for (const conformance::In& in : one.in) {
    if (in.absent) {
      operands.push_back(ir::kNoValue);
      continue;
    }
    Tensor tensor = s.random(in.dtype.value_or(t), in.extents, in.low, std::nextafter(in.high, in.low));
    for (int64_t i = 0; in.fixed && i < tensor.elements(); ++i)
      tensor.set_i64(i, (*in.fixed)[static_cast<size_t>(i)]);
    operands.push_back(in.constant || constants ? s.constant(std::move(tensor))
                                                : s.input(std::move(tensor), false));
  }
  s.add(one.op, operands, one.attributes, one.outputs);
}

}  // namespace heddle::differential
