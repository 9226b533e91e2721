// If and Loop: branches that data chooses, loops that are unrolled and loops that stay.
#include <memory>
#include <string>

#include "ir/builder.h"
#include "ir/ops/control.h"
#include "op_cases_fixture.h"

namespace heddle::conformance {
namespace {

using Id = ir::ValueId;
using Ids = std::vector<Id>;
using Body = std::shared_ptr<const ir::Graph>;

constexpr I kLong = ir::kMaxUnrolled + 6;  // iterations that are not unrolled

class Sketch {
 public:
  Id in(DType dtype, const Extents& extents) { return builder_.input("in", {dtype, ir::to_shape(extents)}); }
  Id constant(ir::Tensor tensor) { return builder_.constant(std::move(tensor)); }
  Ids ops(std::string_view op, Ids inputs, size_t outputs, ir::Attributes attributes = {}) {
    return *builder_.nodes(op, std::move(inputs), outputs, std::move(attributes));
  }
  Id op(std::string_view op, Ids inputs, ir::Attributes attributes = {}) {
    return ops(op, std::move(inputs), 1, std::move(attributes))[0];
  }
  Body take(const Ids& outputs) {
    for (Id id : outputs) builder_.output(id);
    return std::make_shared<const ir::Graph>(*builder_.take());
  }

 private:
  ir::Builder builder_{"body"};
};

In flag(Extents extents, bool value) {
  return {extents, 0, 1, DType::kBool, false, {{value ? 1 : 0}}, false};
}

ir::Attributes branches(Body yes, Body no) {
  return {{"then_branch", std::move(yes)}, {"else_branch", std::move(no)}};
}

// (x[5, 5], fixed[5, 5]) -> x or fixed as they are, turned, and the first of both
Body moving(DType t, bool turn) {
  Sketch s;
  const Id x = s.in(t, {5, 5}), fixed = s.in(t, {5, 5});
  const Id y = turn ? s.op("Transpose", {x}) : fixed;
  return s.take({turn ? fixed : x, y, y});
}

// (x[6, 8], w[8, 4], v[8, 4], outer) -> softmax(x w), or relu(x v) when `outer` is set and tanh(x v) when not
Body multiplying(DType t, bool first) {
  Sketch s;
  const Id x = s.in(t, {6, 8}), w = s.in(t, {8, 4}), v = s.in(t, {8, 4}), outer = s.in(DType::kBool, {});
  if (first) return s.take({s.op("Softmax", {s.op("MatMul", {x, w})})});
  const auto inner = [&](const char* op) {
    Sketch n;
    const Id a = n.in(t, {6, 8}), b = n.in(t, {8, 4});
    return n.take({n.op(op, {n.op("MatMul", {a, b})})});
  };
  return s.take({s.op("If", {outer, x, v}, branches(inner("Relu"), inner("Tanh")))});
}

// (i, go, a[7], b[7], step[7]) -> (go, b, step + a / 2, a, i)
Body swapping(DType t) {
  Sketch s;
  const Id i = s.in(DType::kI64, {}), go = s.in(DType::kBool, {});
  const Id a = s.in(t, {7}), b = s.in(t, {7}), step = s.in(t, {7});
  const Id half = s.op("Div", {a, s.constant(ir::Tensor::scalar(t, 2))});
  return s.take({s.op("Identity", {go}), b, s.op("Add", {half, step}), a, i});
}

// (i, go, a[4, 6], w[6, 6]) -> (go, tanh(a w) where the sum of a is positive, else relu(a) - 1/4; that sum)
Body choosing(DType t) {
  const auto branch = [&](bool first) {
    Sketch n;
    const Id a = n.in(t, {4, 6}), w = n.in(t, {6, 6});
    if (first) return n.take({n.op("Tanh", {n.op("MatMul", {a, w})})});
    return n.take({n.op("Sub", {n.op("Relu", {a}), n.constant(ir::Tensor::scalar(t, 0.25))})});
  };
  Sketch s;
  s.in(DType::kI64, {});
  const Id go = s.in(DType::kBool, {});
  const Id a = s.in(t, {4, 6}), w = s.in(t, {6, 6});
  const Id sum = s.op("ReduceSum", {a}, {{"keepdims", I{0}}});
  const Id positive = s.op("Greater", {sum, s.constant(ir::Tensor::scalar(t, 0))});
  const Id next = s.op("If", {positive, a, w}, branches(branch(true), branch(false)));
  return s.take({s.op("Identity", {go}), next, sum});
}

// (i, go, a[4, 6], w[6, 6]) -> (go, what `trips` turns of choosing() make of a)
Body looping(DType t, I trips) {
  Sketch s;
  s.in(DType::kI64, {});
  const Id go = s.in(DType::kBool, {});
  const Id a = s.in(t, {4, 6}), w = s.in(t, {6, 6});
  const Id count = s.constant(ir::Tensor::scalar(DType::kI64, static_cast<double>(trips)));
  const Id yes = s.constant(ir::Tensor::scalar(DType::kBool, 1));
  const Ids made = s.ops("Loop", {count, yes, a, w}, 2, {{"body", choosing(t)}, {"carried", I{1}}});
  return s.take({s.op("Identity", {go}), made[0]});
}

In yes() { return {{}, 0, 1, DType::kBool, true, {{1}}, false}; }

}  // namespace

void add_control_cases(std::vector<Case>& cases) {
  for (const bool taken : {false, true}) {
    for (DType t : kAll) {
      cases.push_back({"If",
                       {flag({}, taken), T({5, 5}, 0, 2), weight({5, 5}, 0, 2)},
                       branches(moving(t, true), moving(t, false)),
                       {t},
                       3});
    }
    for (DType t : kFloats) {
      for (const bool outer : {false, true}) {
        cases.push_back({"If",
                         {flag({1}, taken), T({6, 8}), weight({8, 4}), T({8, 4}), flag({}, outer)},
                         branches(multiplying(t, true), multiplying(t, false)),
                         {t}});
      }
    }
  }
  for (const I trips : {I{0}, I{1}, I{2}, I{5}, kLong, kLong + 1}) {
    for (DType t : kNumbers) {
      cases.push_back({"Loop",
                       {scalar_i64(trips), yes(), T({7}, 0, 9), T({7}, 0, 9), T({7}, 0, 9)},
                       {{"body", swapping(t)}, {"carried", I{2}}},
                       {t},
                       4});
    }
    const In w = weight({6, 6}, -0.3, 0.3);
    cases.push_back({"Loop",
                     {scalar_i64(trips), yes(), T({4, 6}), w},
                     {{"body", choosing(DType::kF32)}, {"carried", I{1}}},
                     kF32,
                     2});
    for (const I inner : {I{3}, kLong}) {
      cases.push_back({"Loop",
                       {scalar_i64(trips), yes(), T({4, 6}), w},
                       {{"body", looping(DType::kF32, inner)}, {"carried", I{1}}},
                       kF32});
    }
  }
}

}  // namespace heddle::conformance
