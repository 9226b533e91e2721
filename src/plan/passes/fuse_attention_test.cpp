#include <functional>
#include <limits>

#include "plan/passes/optimize.h"
#include "plan/passes/passes.h"
#include "plan/sketch_fixture.h"

namespace heddle::plan {
namespace {

using Id = Sketch::Id;

constexpr int64_t kHeads = 3;
constexpr int64_t kSize = 4;
constexpr int64_t kWidth = kHeads * kSize;
const Symbols kAttentionSymbols{{"batch", 2}, {"seq", 5}, {"keys", 6}};

ir::Graph optimized(ir::Graph graph) {
  return apply([](ir::Graph g) { return optimize(std::move(g)); }, graph, kAttentionSymbols);
}

Id project(Sketch& s, Id x) {
  return s.op("Add", {s.op("MatMul", {x, s.random({kWidth, kWidth})}), s.random({kWidth})});
}
Id by_head(Sketch& s, Id rows, const std::vector<int64_t>& perm = {0, 2, 1, 3}) {
  return s.transpose(s.reshape(rows, {0, 0, kHeads, kSize}), perm);
}
Id joined(Sketch& s, Id context) { return s.reshape(s.transpose(context, {0, 2, 1, 3}), {0, 0, kWidth}); }

struct Spelling {
  std::string what;
  std::function<Id(Sketch&, Id)> scores;  // of scores[batch, heads, seq, seq], before the softmax
  bool mask;
};

Id self_attention(Sketch& s, Id x, const std::function<Id(Sketch&, Id)>& change) {
  const Id q = by_head(s, project(s, x));
  const Id k = by_head(s, project(s, x), {0, 2, 3, 1});
  const Id v = by_head(s, project(s, x));
  const Id scores = change(s, s.op("MatMul", {q, k}));
  return joined(s, s.op("MatMul", {s.op("Softmax", {scores}, {{"axis", int64_t{-1}}}), v}));
}

Id half(Sketch& s, Id scores) { return s.op("Div", {scores, s.number(2)}); }

TEST_CASE("self-attention becomes one packed projection and one Attention") {
  const double lowest = -3.4028234663852886e38;
  const double infinite = -std::numeric_limits<double>::infinity();
  const Spelling spellings[] = {
      {"plain", [](Sketch&, Id a) { return a; }, false},
      {"scores divided", half, false},
      {"scores multiplied", [](Sketch& s, Id a) { return s.op("Mul", {s.number(0.5), a}); }, false},
      {"additive mask of keys",
       [&](Sketch& s, Id a) {
         return s.op("Add", {half(s, a), s.in("mask", {sym("batch"), 1, 1, sym("seq")})});
       },
       true},
      {"additive mask of queries and keys, written first",
       [&](Sketch& s, Id a) {
         return s.op("Add", {s.in("mask", {sym("batch"), 1, sym("seq"), sym("seq")}), half(s, a)});
       },
       true},
      {"additive mask without batch",
       [&](Sketch& s, Id a) { return s.op("Add", {half(s, a), s.in("mask", {sym("seq"), sym("seq")})}); },
       true},
      {"bool mask, true attends",
       [&](Sketch& s, Id a) {
         const Id mask = s.op(
             "Or", {s.in("mask", {sym("batch"), 1, 1, sym("seq")}, ir::DType::kBool),
                    s.constant(ir::Tensor::of<int64_t>(ir::DType::kBool, {1}, std::vector<int64_t>{1}))});
         return s.op("Where", {mask, half(s, a), s.number(infinite)});
       },
       true},
      {"bool mask, true is left out",
       [&](Sketch& s, Id a) {
         const Id mask = s.in("mask", {sym("batch"), 1, 1, sym("seq")}, ir::DType::kBool);
         return s.op("Where", {mask, s.number(lowest), half(s, a)});
       },
       true},
  };
  for (const Spelling& each : spellings) {
    CAPTURE(each.what);
    Sketch s;
    s.out(self_attention(s, s.in("x", {sym("batch"), sym("seq"), kWidth}), each.scores));
    const ir::Graph after = optimized(s.take());
    const ir::Node& attention = the(after, "Attention");
    CHECK(attention.attributes.i64("packed") == 1);
    CHECK(attention.attributes.i64("num_heads") == kHeads);
    CHECK(attention.has_input(3) == each.mask);
    CHECK(count(after, "Linear") == 1);
    for (const char* gone : {"MatMul", "Softmax", "Transpose", "Reshape"}) CHECK(count(after, gone) == 0);
  }
}

TEST_CASE("rows with nothing to attend to give zeros behind the guard against NaN") {
  Sketch s;
  const Id x = s.in("x", {sym("batch"), sym("seq"), kWidth});
  const Id mask = s.in("mask", {sym("batch"), 1, 1, sym("seq")}, ir::DType::kBool);
  const Id scores = s.op("MatMul", {by_head(s, project(s, x)), by_head(s, project(s, x), {0, 2, 3, 1})});
  const Id masked = s.op("Where", {mask, scores, s.number(-std::numeric_limits<double>::infinity())});
  const Id p = s.op("Softmax", {masked}, {{"axis", int64_t{3}}});
  const Id safe = s.op("Where", {s.op("IsNaN", {p}), s.number(0), p});
  s.out(joined(s, s.op("MatMul", {safe, by_head(s, project(s, x))})));
  const ir::Graph before = s.take();
  const ir::Graph after = optimized(before);
  CHECK(count(after, "Attention") == 1);
  auto inputs = random_inputs(before, kAttentionSymbols);
  inputs[1] = ir::Tensor::zeros(ir::DType::kBool, {2, 1, 1, 5});
  check_equal(run(before, inputs), run(after, inputs));
}

TEST_CASE("the root of the scale on q and on k, as scaled_dot_product_attention writes it") {
  Sketch s;
  const Id x = s.in("x", {sym("batch"), 5, kWidth});
  const Id q = s.op("Mul", {by_head(s, project(s, x)), s.number(0.6)});
  const Id k3 = s.reshape(by_head(s, project(s, x)), {-1, 5, kSize});
  const Id k = s.op("Mul", {s.reshape(s.transpose(k3, {0, 2, 1}), {-1, kHeads, kSize, 5}), s.number(0.7)});
  const Id p = s.op("Softmax", {s.op("MatMul", {q, k})}, {{"axis", int64_t{-1}}});
  s.out(joined(s, s.op("MatMul", {p, by_head(s, project(s, x))})));
  const ir::Graph after = optimized(s.take());
  CHECK(after.nodes.size() == 2);
  CHECK(the(after, "Attention").attributes.f64("scale") == doctest::Approx(0.42));
}

// nn.MultiheadAttention: one projection of 3 * width over [seq, batch, width], cut by a transpose and three
// picks.
TEST_CASE("an in-projection that is packed already stays one Linear") {
  Sketch s;
  const Id x = s.in("x", {sym("batch"), 5, kWidth});
  const Id rows = s.transpose(x, {1, 0, 2});
  const Id qkv =
      s.op("Add", {s.op("MatMul", {rows, s.random({kWidth, 3 * kWidth})}), s.random({3 * kWidth})});
  const Id five = s.op("Unsqueeze", {s.reshape(qkv, {5, -1, 3, kWidth}), s.ints({0})});
  const Id parts = s.op("Squeeze", {s.transpose(five, {3, 1, 2, 0, 4}), s.ints({-2})});
  Id part[3];
  for (int64_t i = 0; i < 3; ++i) {
    const Id picked =
        s.op("Gather", {parts, s.constant(ir::Tensor::scalar(ir::DType::kI64, static_cast<double>(i)))});
    part[i] = s.reshape(s.transpose(s.reshape(picked, {5, -1, kSize}), {1, 0, 2}), {-1, kHeads, 5, kSize});
  }
  const Id k = s.transpose(part[1], {0, 1, 3, 2});
  const Id p = s.op("Softmax", {half(s, s.op("MatMul", {part[0], k}))}, {{"axis", int64_t{-1}}});
  const Id context = s.transpose(s.op("MatMul", {p, part[2]}), {2, 0, 1, 3});
  const Id flat =
      s.op("Gemm", {s.reshape(context, {-1, kWidth}), s.random({kWidth, kWidth}), s.random({kWidth})});
  s.out(s.op("Add", {x, s.transpose(s.reshape(flat, {5, -1, kWidth}), {1, 0, 2})}));
  const ir::Graph after = optimized(s.take());
  CHECK(after.nodes.size() == 3);
  CHECK(count(after, "Linear") == 2);
  CHECK(the(after, "Attention").attributes.i64("packed") == 1);
}

TEST_CASE("q, k and v cut by Split from one projection are packed") {
  Sketch s;
  const Id x = s.in("x", {sym("batch"), sym("seq"), kWidth});
  const Id qkv = s.op("MatMul", {x, s.random({kWidth, 3 * kWidth})});
  const auto parts = s.ops("Split", {qkv}, 3, {{"axis", int64_t{-1}}, {"num_outputs", int64_t{3}}});
  const Id p = s.op("Softmax", {s.op("MatMul", {by_head(s, parts[0]), by_head(s, parts[1], {0, 2, 3, 1})})});
  s.out(joined(s, s.op("MatMul", {p, by_head(s, parts[2])})));
  const ir::Graph after = optimized(s.take());
  CHECK(after.nodes.size() == 2);
  CHECK(the(after, "Attention").attributes.i64("packed") == 1);
}

TEST_CASE("q, k and v in another order in one projection are cut out, not taken for packed") {
  const int orders[][3] = {{0, 2, 1}, {1, 0, 2}, {2, 1, 0}, {0, 1, 1}, {0, 0, 2}};
  for (const auto& order : orders) {
    Sketch s;
    const Id x = s.in("x", {sym("batch"), sym("seq"), kWidth});
    const Id qkv = s.op("MatMul", {x, s.random({kWidth, 3 * kWidth})});
    const auto parts = s.ops("Split", {qkv}, 3, {{"axis", int64_t{-1}}, {"num_outputs", int64_t{3}}});
    const auto part = [&](int i) { return parts[static_cast<size_t>(order[i])]; };
    const Id k = by_head(s, part(1), {0, 2, 3, 1});
    const Id p = s.op("Softmax", {s.op("MatMul", {by_head(s, part(0)), k})});
    s.out(joined(s, s.op("MatMul", {p, by_head(s, part(2))})));
    const ir::Graph after = optimized(s.take());
    CHECK(the(after, "Attention").attributes.i64("packed") == 0);
    CHECK(count(after, "Slice") > 0);
  }
}

TEST_CASE("attention to another sequence keeps three projections") {
  Sketch s;
  const Id x = s.in("x", {sym("batch"), sym("seq"), kWidth});
  const Id memory = s.in("memory", {sym("batch"), sym("keys"), kWidth});
  const Id scores = s.op("MatMul", {by_head(s, project(s, x)), by_head(s, project(s, memory), {0, 2, 3, 1})});
  const Id p = s.op("Softmax", {scores}, {{"axis", int64_t{-1}}});
  s.out(joined(s, s.op("MatMul", {p, by_head(s, project(s, memory))})));
  const ir::Graph after = optimized(s.take());
  CHECK(count(after, "Linear") == 3);
  CHECK(the(after, "Attention").attributes.i64("packed") == 0);
  CHECK(after.nodes.size() == 4);
}

TEST_CASE("a constant triangle is a causal mask") {
  for (const bool additive : {false, true}) {
    Sketch s;
    ir::Tensor mask = ir::Tensor::zeros(additive ? ir::DType::kF32 : ir::DType::kBool, {1, 1, 5, 5});
    for (int64_t i = 0; i < 25; ++i) {
      const bool seen = i % 5 <= i / 5;
      mask.set(i, additive ? (seen ? 0 : -std::numeric_limits<double>::infinity()) : (seen ? 1 : 0));
    }
    const Id m = s.constant(mask);
    s.out(self_attention(s, s.in("x", {sym("batch"), 5, kWidth}), [&](Sketch& t, Id a) {
      if (additive) return t.op("Add", {half(t, a), m});
      return t.op("Where", {m, half(t, a), t.number(-std::numeric_limits<double>::infinity())});
    }));
    const ir::Graph after = optimized(s.take());
    CHECK(the(after, "Attention").attributes.i64("causal") == 1);
    CHECK_FALSE(the(after, "Attention").has_input(3));
  }
}

TEST_CASE("what Attention cannot say stays as it is") {
  const Spelling others[] = {
      {"masked, then scaled",
       [](Sketch& s, Id a) { return half(s, s.op("Add", {a, s.in("mask", {sym("batch"), 1, 1, 5})})); },
       false},
      {"two masks",
       [](Sketch& s, Id a) {
         return s.op("Add", {s.op("Add", {a, s.in("m", {5, 5})}), s.in("mask", {sym("batch"), 1, 1, 5})});
       },
       false},
      {"a fill that does not hide",
       [](Sketch& s, Id a) {
         return s.op("Where", {s.in("mask", {5, 5}, ir::DType::kBool), a, s.number(-5)});
       },
       false},
      {"a scale per key", [](Sketch& s, Id a) { return s.op("Mul", {a, s.random({5})}); }, false},
      {"scores that are an output",
       [](Sketch& s, Id a) {
         s.out(a, "scores");
         return a;
       },
       false},
      {"scores bent", [](Sketch& s, Id a) { return s.op("Tanh", {a}); }, false},
  };
  for (const Spelling& each : others) {
    CAPTURE(each.what);
    Sketch s;
    s.out(self_attention(s, s.in("x", {sym("batch"), 5, kWidth}), each.scores));
    CHECK(count(optimized(s.take()), "Attention") == 0);
  }
}

TEST_CASE("heads that are interleaved, or summed over another axis, are no heads") {
  Sketch s;
  const Id x = s.in("x", {sym("batch"), 5, kWidth});
  const auto interleaved = [&](std::vector<int64_t> perm) {
    return s.transpose(s.reshape(project(s, x), {0, 0, kSize, kHeads}), std::move(perm));
  };
  const Id p = s.op("Softmax", {s.op("MatMul", {interleaved({0, 3, 1, 2}), interleaved({0, 3, 2, 1})})});
  s.out(s.op("MatMul", {p, by_head(s, project(s, x))}));
  const Id other =
      s.op("Softmax", {s.op("MatMul", {by_head(s, x), by_head(s, x, {0, 2, 3, 1})})}, {{"axis", int64_t{2}}});
  s.out(s.op("MatMul", {other, by_head(s, x)}), "z");
  CHECK(count(optimized(s.take()), "Attention") == 0);
}

TEST_CASE("projections of different inputs, or read elsewhere, are not packed") {
  Sketch s;
  const Id x = s.in("x", {sym("batch"), sym("seq"), kWidth});
  const Id k = project(s, x);
  s.out(k, "keys");
  const Id p = s.op("Softmax", {s.op("MatMul", {by_head(s, project(s, x)), by_head(s, k, {0, 2, 3, 1})})});
  s.out(joined(s, s.op("MatMul", {p, by_head(s, project(s, x))})));
  const ir::Graph after = optimized(s.take());
  CHECK(count(after, "Linear") == 3);
  CHECK(the(after, "Attention").attributes.i64("packed") == 0);
}

TEST_CASE("a mask that shapes draw makes Attention causal, and lets the projections be packed") {
  const double infinite = -std::numeric_limits<double>::infinity();
  struct Case {
    std::string what;
    std::function<Id(Sketch&, Id, Id)> mask;  // of the square's extents and of a one
    bool causal;
  };
  const auto square = [](Sketch& s, Id extents, Id fill) { return s.op("Expand", {fill, extents}); };
  const auto lower = [&](Sketch& s, Id extents, Id one) {
    return s.op("Trilu", {square(s, extents, one)}, {{"upper", int64_t{0}}});
  };
  const auto blocked = [&](Sketch& s, Id extents, Id one) {
    return s.op("Equal", {lower(s, extents, one), s.number(0)});
  };
  const Case cases[] = {
      {"chosen by the lower triangle",
       [&](Sketch& s, Id e, Id one) {
         return s.op("Where", {blocked(s, e, one), s.number(infinite), s.number(0)});
       },
       true},
      {"chosen the other way round",
       [&](Sketch& s, Id e, Id one) {
         return s.op("Where", {s.op("Not", {blocked(s, e, one)}), s.number(0), s.number(-3e38)});
       },
       true},
      {"the upper triangle itself",
       [&](Sketch& s, Id e, Id) {
         const Id above = s.constant(ir::Tensor::scalar(ir::DType::kI64, 1));
         return s.op("Trilu", {square(s, e, s.number(-3e38)), above}, {{"upper", int64_t{1}}});
       },
       true},
      {"keys before the query are hidden",
       [&](Sketch& s, Id e, Id one) {
         return s.op("Where", {blocked(s, e, one), s.number(0), s.number(-3e38)});
       },
       false},
      {"a small penalty",
       [&](Sketch& s, Id e, Id one) {
         return s.op("Where", {blocked(s, e, one), s.number(-5), s.number(0)});
       },
       false},
  };
  for (const Case& each : cases) {
    CAPTURE(each.what);
    Sketch s;
    const Id x = s.in("x", {sym("batch"), sym("seq"), kWidth});
    s.out(self_attention(s, x, [&](Sketch& sk, Id scores) {
      const Id length = sk.op("Gather", {sk.op("Shape", {scores}), sk.ints({-1})});
      const Id extents = sk.op("Concat", {length, length}, {{"axis", int64_t{0}}});
      return sk.op("Add", {scores, each.mask(sk, extents, sk.number(1))});
    }));
    const ir::Graph after = optimized(s.take());
    CHECK(the(after, "Attention").attributes.i64("causal") == (each.causal ? 1 : 0));
    CHECK(the(after, "Attention").has_input(3) != each.causal);
    CHECK(the(after, "Attention").attributes.i64("packed") == 1);
  }
}

TEST_CASE("heads of keys and values that several queries share are not copied") {
  for (const bool turned : {false, true}) {  // q is no projection, but something made of one
    CAPTURE(turned);
    Sketch s;
    const Id x = s.in("x", {sym("batch"), sym("seq"), kWidth});
    Id q = by_head(s, project(s, x));
    if (turned) q = s.op("Mul", {q, s.in("angle", {sym("seq"), kSize})});
    const auto shared = [&] {
      const Id rows = s.op("MatMul", {x, s.random({kWidth, kSize})});
      const Id one = s.transpose(s.reshape(rows, {0, 0, 1, kSize}), {0, 2, 1, 3});
      const Id shape = s.op("Shape", {one});
      const auto part = [&](int64_t axis) { return s.op("Gather", {shape, s.ints({axis})}); };
      const Id five =
          s.op("Concat", {part(0), part(1), s.ints({kHeads}), part(2), part(3)}, {{"axis", int64_t{0}}});
      const Id four = s.op("Concat", {part(0), s.ints({kHeads}), part(2), part(3)}, {{"axis", int64_t{0}}});
      const Id wide = s.op("Expand", {s.op("Unsqueeze", {one, s.ints({2})}), five});
      return s.op("Reshape", {wide, four});
    };
    const Id k = s.transpose(shared(), {0, 1, 3, 2});
    const Id v = shared();
    const Id weights = s.op("Softmax", {half(s, s.op("MatMul", {q, k}))}, {{"axis", int64_t{-1}}});
    s.out(joined(s, s.op("MatMul", {weights, v})));
    const ir::Graph after = optimized(s.take());
    CHECK(the(after, "Attention").attributes.i64("num_heads") == kHeads);
    CHECK(the(after, "Attention").attributes.i64("kv_heads") == 1);
    CHECK(count(after, "Expand") == 0);
    CHECK(count(after, "Transpose") == (turned ? 2 : 0));
  }
}

}  // namespace
}  // namespace heddle::plan
