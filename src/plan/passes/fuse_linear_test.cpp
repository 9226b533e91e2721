#include <functional>

#include "plan/passes/optimize.h"
#include "plan/passes/passes.h"
#include "plan/sketch_fixture.h"

namespace heddle::plan {
namespace {

using Id = Sketch::Id;

const Symbols kLinearSymbols{{"batch", 3}, {"seq", 5}};

ir::Graph fuse(ir::Graph graph) { return drop_dead(apply(fuse_linear, graph, kLinearSymbols)); }

TEST_CASE("products with constant weights become Linear, with bias, activation and residual") {
  struct Case {
    std::string what;
    std::function<Id(Sketch&, Id)> build;  // of x[batch, seq, 8]
    std::string activation;
    bool bias;
    bool residual;
  };
  const Case cases[] = {
      {"matmul", [](Sketch& s, Id x) { return s.op("MatMul", {x, s.random({8, 6})}); }, "", false, false},
      {"transposed weights",
       [](Sketch& s, Id x) { return s.op("MatMul", {x, s.transpose(s.random({6, 8}), {1, 0})}); }, "", false,
       false},
      {"bias after",
       [](Sketch& s, Id x) { return s.op("Add", {s.op("MatMul", {x, s.random({8, 6})}), s.random({6})}); },
       "", true, false},
      {"bias before, with more axes",
       [](Sketch& s, Id x) {
         return s.op("Add", {s.random({1, 1, 6}), s.op("MatMul", {x, s.random({8, 6})})});
       },
       "", true, false},
      {"scalar bias",
       [](Sketch& s, Id x) { return s.op("Add", {s.number(3), s.op("MatMul", {x, s.random({8, 6})})}); }, "",
       true, false},
      {"bias and relu",
       [](Sketch& s, Id x) {
         return s.op("Relu", {s.op("Add", {s.op("MatMul", {x, s.random({8, 6})}), s.random({6})})});
       },
       "relu", true, false},
      {"tanh gelu and residual",
       [](Sketch& s, Id x) {
         const Id g =
             s.op("Gelu", {s.op("MatMul", {x, s.random({8, 8})})}, {{"approximate", std::string("tanh")}});
         return s.op("Add", {x, g});
       },
       "gelu_tanh", false, true},
      {"bias and residual",
       [](Sketch& s, Id x) {
         return s.op("Add", {s.op("Add", {s.op("MatMul", {x, s.random({8, 8})}), s.random({8})}), x});
       },
       "", true, true},
      {"rows regrouped around it",
       [](Sketch& s, Id x) {
         return s.reshape(s.op("MatMul", {s.reshape(x, {-1, 8}), s.random({8, 6})}), {-1, 5, 6});
       },
       "", false, false},
  };
  for (const Case& each : cases) {
    CAPTURE(each.what);
    Sketch s;
    const bool regroups = each.what.starts_with("rows");
    s.out(each.build(s, s.in("x", {sym("batch"), regroups ? ir::Dim(5) : sym("seq"), 8})));
    const ir::Graph after = fuse(s.take());
    const ir::Node& linear = the(after, "Linear");
    CHECK(after.nodes.size() == 1);
    CHECK(linear.attributes.str("activation") == each.activation);
    CHECK(linear.has_input(2) == each.bias);
    CHECK(linear.has_input(3) == each.residual);
  }
}

TEST_CASE("Gemm becomes Linear when it is one") {
  struct Case {
    ir::Extents weight;
    ir::Extents c;
    ir::Attributes attributes;
    bool fuses;
  };
  const Case cases[] = {
      {{8, 6}, {6}, {}, true},
      {{6, 8}, {6}, {{"transB", int64_t{1}}}, true},
      {{8, 6}, {1, 6}, {}, true},
      {{8, 6}, {}, {}, true},
      {{8, 6}, {6}, {{"alpha", 2.0}}, false},
      {{8, 6}, {6}, {{"beta", 0.5}}, false},
      {{8, 6}, {3, 1}, {}, false},
  };
  for (const Case& each : cases) {
    Sketch s;
    const Id x = s.in("x", {3, 8});
    s.out(s.op("Relu", {s.op("Gemm", {x, s.random(each.weight), s.random(each.c)}, each.attributes)}));
    const ir::Graph after = fuse(s.take());
    CHECK(count(after, "Linear") == (each.fuses ? 1 : 0));
    CHECK(after.nodes.size() == (each.fuses ? 1 : 2));
  }
}

TEST_CASE("weights that lie transposed in the file are not copied") {
  Sketch s;
  s.out(s.op("MatMul", {s.in("x", {sym("batch"), 8}), s.transpose(s.random({6, 8}), {1, 0})}));
  const ir::Graph before = s.take();
  const ir::Graph after = fuse(before);
  const ir::Node& linear = the(after, "Linear");
  CHECK(linear.attributes.i64("trans_w") == 1);
  CHECK(after.values[linear.inputs[1]].constant->data() ==
        before.values[the(before, "Transpose").inputs[0]].constant->data());
}

TEST_CASE("Linear takes nothing that would change a value") {
  struct Case {
    std::string what;
    std::function<void(Sketch&, Id, Id)> build;  // of x[batch, seq, 8] and its Linear
    int adds_and_relus;
  };
  const Case cases[] = {
      {"a second reader of the product",
       [](Sketch& s, Id, Id m) { s.out(s.op("Relu", {m})), s.out(s.op("Neg", {m}), "z"); }, 1},
      {"the product is an output", [](Sketch& s, Id, Id m) { s.out(s.op("Relu", {m})), s.out(m, "z"); }, 1},
      {"a bias along another axis", [](Sketch& s, Id, Id m) { s.out(s.op("Add", {m, s.random({5, 1})})); },
       1},
      {"a bias that makes the result larger",
       [](Sketch& s, Id, Id m) { s.out(s.op("Add", {m, s.random({2, 1, 1, 8})})); }, 1},
      {"a residual that broadcasts",
       [](Sketch& s, Id x, Id m) { s.out(s.op("Add", {m, s.op("ReduceMax", {x, s.ints({1})})})); }, 1},
      {"a bias after the activation",
       [](Sketch& s, Id, Id m) { s.out(s.op("Add", {s.op("Relu", {m}), s.random({8})})); }, 1},
      {"an activation after the residual",
       [](Sketch& s, Id x, Id m) { s.out(s.op("Relu", {s.op("Add", {m, x})})); }, 1},
      {"two activations", [](Sketch& s, Id, Id m) { s.out(s.op("Relu", {s.op("Tanh", {m})})); }, 1},
      {"the product added to itself", [](Sketch& s, Id, Id m) { s.out(s.op("Add", {m, m})); }, 1},
  };
  for (const Case& each : cases) {
    CAPTURE(each.what);
    Sketch s;
    const Id x = s.in("x", {sym("batch"), 5, 8});
    each.build(s, x, s.op("MatMul", {x, s.random({8, 8})}));
    const ir::Graph after = fuse(s.take());
    CHECK(count(after, "Linear") == 1);
    CHECK(count(after, "Add") + count(after, "Relu") == each.adds_and_relus);
  }
}

TEST_CASE("a product whose weights are computed stays a MatMul") {
  Sketch s;
  s.out(s.op("MatMul", {s.in("x", {sym("batch"), 8}), s.in("w", {8, 6})}));
  CHECK(count(fuse(s.take()), "MatMul") == 1);
}

TEST_CASE("transposes of rows on both sides of a Linear cancel") {
  Sketch s;
  const Id x = s.in("x", {sym("batch"), sym("seq"), 8});
  s.out(s.transpose(s.op("MatMul", {s.transpose(x, {1, 0, 2}), s.random({8, 6})}), {1, 0, 2}));
  CHECK(fuse(s.take()).nodes.size() == 1);
}

TEST_CASE("without the fusion nothing becomes Linear") {
  Sketch s;
  s.out(s.op("Relu", {s.op("MatMul", {s.in("x", {sym("batch"), 8}), s.random({8, 6})})}));
  const auto made = optimize(s.take(), {.linear = false});
  REQUIRE(made.ok());
  CHECK(count(*made, "MatMul") == 1);
}

}  // namespace
}  // namespace heddle::plan
