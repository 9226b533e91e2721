#include <functional>

#include "plan/passes/optimize.h"
#include "plan/passes/passes.h"
#include "plan/sketch_fixture.h"

namespace heddle::plan {
namespace {

using Id = Sketch::Id;

const Symbols kConvSymbols{{"batch", 2}};

Id conv(Sketch& s, Id x, bool bias = false) {
  std::vector<Id> inputs{x, s.random({4, 4, 3, 3})};
  if (bias) inputs.push_back(s.random({4}));
  return s.op("Conv", inputs, {{"pads", std::vector<int64_t>{1, 1, 1, 1}}});
}
Id norm(Sketch& s, Id x) {
  return s.op("BatchNormalization", {x, s.random({4}), s.random({4}), s.random({4}), s.random({4}, 0.5, 2)},
              {{"epsilon", 1e-3}});
}

TEST_CASE("normalisation, constants, residual and activation go into the convolution") {
  struct Case {
    std::string what;
    std::function<Id(Sketch&, Id)> build;
    bool residual;
    std::string activation;
  };
  const Case cases[] = {
      {"batch norm", [](Sketch& s, Id x) { return norm(s, conv(s, x)); }, false, ""},
      {"bias, batch norm, relu", [](Sketch& s, Id x) { return s.op("Relu", {norm(s, conv(s, x, true))}); },
       false, "relu"},
      {"residual, then relu",
       [](Sketch& s, Id x) { return s.op("Relu", {s.op("Add", {norm(s, conv(s, x)), x})}); }, true, "relu"},
      {"residual first", [](Sketch& s, Id x) { return s.op("Tanh", {s.op("Add", {x, conv(s, x)})}); }, true,
       "tanh"},
      {"hard-swish", [](Sketch& s, Id x) { return s.op("HardSwish", {conv(s, x)}); }, false, "hard_swish"},
      {"clip", [](Sketch& s, Id x) { return s.op("Clip", {conv(s, x), s.number(0), s.number(0.5)}); }, false,
       "clip"},
      {"leaky relu",
       [](Sketch& s, Id x) { return s.op("LeakyRelu", {norm(s, conv(s, x))}, {{"alpha", 0.2}}); }, false,
       "leaky_relu"},
      {"hard-sigmoid", [](Sketch& s, Id x) { return s.op("HardSigmoid", {conv(s, x)}, {{"alpha", 0.3}}); },
       false, "hard_sigmoid"},
      {"constants per channel",
       [](Sketch& s, Id x) {
         return s.op("Add", {s.op("Mul", {conv(s, x), s.random({4, 1, 1})}), s.random({1, 4, 1, 1})});
       },
       false, ""},
  };
  for (const Case& each : cases) {
    CAPTURE(each.what);
    Sketch s;
    s.out(each.build(s, s.in("x", {sym("batch"), 4, 6, 5})));
    const ir::Graph after = drop_dead(apply(fuse_conv, s.take(), kConvSymbols));
    CHECK(after.nodes.size() == 1);
    CHECK(the(after, "Conv").has_input(3) == each.residual);
    CHECK(the(after, "Conv").attributes.str("activation") == each.activation);
  }
}

TEST_CASE("grouped and strided convolutions take normalisation too") {
  Sketch s;
  const Id x = s.in("x", {sym("batch"), 4, 6, 5});
  const Id c = s.op("Conv", {x, s.random({4, 2, 3, 3})},
                    {{"group", int64_t{2}}, {"strides", std::vector<int64_t>{2, 1}}});
  s.out(s.op("Relu", {norm(s, c)}));
  CHECK(drop_dead(apply(fuse_conv, s.take(), kConvSymbols)).nodes.size() == 1);
}

TEST_CASE("a transposed convolution takes normalisation, constants and activation") {
  Sketch s;
  const Id x = s.in("x", {sym("batch"), 3, 6, 5});
  const Id c = s.op("ConvTranspose", {x, s.random({3, 4, 2, 2})}, {{"strides", std::vector<int64_t>{2, 2}}});
  s.out(s.op("Relu", {s.op("Add", {norm(s, c), s.random({1, 4, 1, 1})})}));
  const ir::Graph after = drop_dead(apply(fuse_conv, s.take(), kConvSymbols));
  CHECK(after.nodes.size() == 1);
  CHECK(the(after, "ConvTranspose").attributes.str("activation") == "relu");
}

TEST_CASE("hard-swish and hard-sigmoid are found however they are spelled") {
  struct Case {
    std::string what;
    std::function<Id(Sketch&, Id)> build;
    std::string op;
  };
  const auto clip = [](Sketch& s, Id x) {
    return s.op("Clip", {s.op("Add", {x, s.number(3)}), s.number(0), s.number(6)});
  };
  const Case cases[] = {
      {"x * clip / 6",
       [&](Sketch& s, Id x) { return s.op("Div", {s.op("Mul", {x, clip(s, x)}), s.number(6)}); },
       "HardSwish"},
      {"x * (clip / 6)",
       [&](Sketch& s, Id x) { return s.op("Mul", {x, s.op("Div", {clip(s, x), s.number(6)})}); },
       "HardSwish"},
      {"x * hard-sigmoid",
       [](Sketch& s, Id x) {
         return s.op("Mul", {s.op("HardSigmoid", {x}, {{"alpha", 1.0 / 6}, {"beta", 0.5}}), x});
       },
       "HardSwish"},
      {"clip * a sixth", [&](Sketch& s, Id x) { return s.op("Mul", {s.number(1.0 / 6), clip(s, x)}); },
       "HardSigmoid"},
  };
  for (const Case& each : cases) {
    CAPTURE(each.what);
    Sketch s;
    s.out(each.build(s, s.in("x", {sym("batch"), 5})));
    const ir::Graph after = drop_dead(apply(fuse_gates, s.take(), kConvSymbols));
    CHECK(after.nodes.size() == 1);
    CHECK(count(after, each.op) == 1);
  }
  Sketch s;
  const Id x = s.in("x", {sym("batch"), 5});
  s.out(s.op("Mul", {x, s.op("HardSigmoid", {x})}));  // a slope of 0.2
  CHECK(drop_dead(apply(fuse_gates, s.take(), kConvSymbols)).nodes.size() == 2);
}

TEST_CASE("the convolution takes nothing that would change a value") {
  struct Case {
    std::string what;
    std::function<Id(Sketch&, Id)> build;
    size_t nodes;
  };
  const Case cases[] = {
      {"a second reader",
       [](Sketch& s, Id x) {
         const Id c = conv(s, x);
         s.out(c, "z");
         return norm(s, c);
       },
       2},
      {"activation before the residual",
       [](Sketch& s, Id x) { return s.op("Add", {s.op("Relu", {conv(s, x)}), x}); }, 2},
      {"normalisation after the activation",
       [](Sketch& s, Id x) { return norm(s, s.op("Relu", {conv(s, x)})); }, 2},
      {"normalisation after the residual",
       [](Sketch& s, Id x) { return norm(s, s.op("Add", {conv(s, x), x})); }, 2},
      {"a constant per column", [](Sketch& s, Id x) { return s.op("Add", {conv(s, x), s.random({5})}); }, 2},
      {"a residual that broadcasts",
       [](Sketch& s, Id x) { return s.op("Add", {conv(s, x), s.in("r", {sym("batch"), 4, 1, 1})}); }, 2},
  };
  for (const Case& each : cases) {
    CAPTURE(each.what);
    Sketch s;
    s.out(each.build(s, s.in("x", {sym("batch"), 4, 6, 5})));
    CHECK(drop_dead(apply(fuse_conv, s.take(), kConvSymbols)).nodes.size() == each.nodes);
  }
}

TEST_CASE("element-wise chains and diamonds become one node") {
  struct Case {
    std::string what;
    std::function<Id(Sketch&, Id)> build;
    size_t nodes;
  };
  const Case cases[] = {
      {"chain", [](Sketch& s, Id x) { return s.op("Mul", {s.op("Exp", {s.op("Neg", {x})}), s.number(3)}); },
       1},
      {"diamond",
       [](Sketch& s, Id x) {
         const Id t = s.op("Tanh", {x});
         return s.op("Add", {s.op("Exp", {t}), s.op("Mul", {t, s.random({5})})});
       },
       1},
      {"compare and choose",
       [](Sketch& s, Id x) { return s.op("Where", {s.op("Less", {x, s.number(0)}), s.op("Exp", {x}), x}); },
       1},
      {"a smaller operand is computed apart",
       [](Sketch& s, Id x) { return s.op("Add", {x, s.op("Exp", {s.op("Neg", {s.in("r", {5})})})}); }, 2},
      {"read twice",
       [](Sketch& s, Id x) {
         const Id t = s.op("Tanh", {x});
         s.out(t, "z");
         return s.op("Exp", {s.op("Neg", {t})});
       },
       2},
      {"one node alone", [](Sketch& s, Id x) { return s.op("Exp", {x}); }, 1},
  };
  for (const Case& each : cases) {
    CAPTURE(each.what);
    Sketch s;
    s.out(each.build(s, s.in("x", {sym("batch"), 4, 5})));
    const ir::Graph after = apply(fuse_elementwise, s.take(), kConvSymbols, 0);
    CHECK(after.nodes.size() == each.nodes);
    CHECK(count(after, "Elementwise") == (each.what == "one node alone" ? 0 : 1));
  }
}

TEST_CASE("long chains are cut at a bound, not left alone") {
  Sketch s;
  Id at = s.in("x", {sym("batch"), 4});
  for (int i = 0; i < 60; ++i) at = s.op(i % 2 == 0 ? "Tanh" : "Neg", {at});
  s.out(at);
  const ir::Graph after = apply(fuse_elementwise, s.take(), kConvSymbols, 0);
  CHECK(after.nodes.size() == 3);
  for (const ir::Node& node : after.nodes) CHECK(node.attributes.graph("body")->nodes.size() <= 24);
}

TEST_CASE("work on shapes is not drawn into a chain over data") {
  Sketch s;
  const Id x = s.in("x", {sym("batch"), 4});
  const Id rows = s.op("Cast", {s.op("Shape", {x})}, {{"to", std::string("f32")}});
  const Id share = s.op("Reciprocal", {s.op("Gather", {rows, s.ints({0})})});
  s.out(s.op("Exp", {s.op("Mul", {s.op("Neg", {x}), s.op("Expand", {share, s.op("Shape", {x})})})}));
  const ir::Graph after = apply(fuse_elementwise, s.take(), kConvSymbols, 0);
  CHECK(count(after, "Reciprocal") == 1);
  CHECK(the(after, "Elementwise").attributes.graph("body")->nodes.size() == 3);
}

TEST_CASE("fusions that a driver does not run are not made") {
  Sketch s;
  const Id x = s.in("x", {sym("batch"), 4, 6, 5});
  s.out(s.op("Exp", {s.op("Neg", {s.op("Relu", {norm(s, conv(s, x))})})}));
  const ir::Graph graph = s.take();
  const auto without = optimize(graph, {.conv = false, .elementwise = false});
  REQUIRE(without.ok());
  CHECK(without->nodes.size() == 5);
  const auto with = optimize(graph);
  REQUIRE(with.ok());
  CHECK(with->nodes.size() == 2);
}

}  // namespace
}  // namespace heddle::plan
