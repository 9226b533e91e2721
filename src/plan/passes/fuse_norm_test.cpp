#include <functional>
#include <numbers>

#include "plan/passes/passes.h"
#include "plan/sketch_fixture.h"

namespace heddle::plan {
namespace {

using Id = Sketch::Id;

const Symbols kNormSymbols{{"batch", 3}, {"seq", 5}};

struct Norm {
  std::string what;
  std::function<Id(Sketch&, Id)> build;  // of x[batch, seq, 8]
};

ir::Graph fused(const Norm& spelling) {
  Sketch s;
  s.out(spelling.build(s, s.in("x", {sym("batch"), sym("seq"), 8})));
  return drop_dead(apply(fuse_layer_norm, s.take(), kNormSymbols));
}

Id mean(Sketch& s, Id x, const std::vector<int64_t>& axes = {-1}) {
  return s.op("ReduceMean", {x, s.ints(axes)});
}
Id square(Sketch& s, Id d, int spelling) {
  if (spelling == 0) return s.op("Pow", {d, s.number(2)});
  return spelling == 1 ? s.op("Mul", {d, d}) : s.op("Square", {d});
}
Id shifted(Sketch& s, Id v) { return s.op("Add", {v, s.number(1e-5)}); }

TEST_CASE("layer normalisation is found in its usual spellings") {
  const Norm spellings[] = {
      {"divided by the root",
       [](Sketch& s, Id x) {
         const Id d = s.op("Sub", {x, mean(s, x)});
         const Id n = s.op("Div", {d, s.op("Sqrt", {shifted(s, mean(s, square(s, d, 0)))})});
         return s.op("Add", {s.op("Mul", {n, s.random({8})}), s.random({8})});
       }},
      {"centred twice, operands swapped",
       [](Sketch& s, Id x) {
         const Id v = mean(s, square(s, s.op("Sub", {x, mean(s, x)}), 1), {2});
         const Id n =
             s.op("Div", {s.op("Sub", {x, mean(s, x)}), s.op("Sqrt", {s.op("Add", {s.number(1e-5), v})})});
         return s.op("Add", {s.random({8}), s.op("Mul", {s.random({1, 1, 8}), n})});
       }},
      {"times the reciprocal of the root",
       [](Sketch& s, Id x) {
         const Id d = s.op("Sub", {x, mean(s, x)});
         const Id r = s.op("Reciprocal", {s.op("Sqrt", {shifted(s, mean(s, square(s, d, 2)))})});
         return s.op("Add", {s.op("Mul", {s.random({8}), s.op("Mul", {d, r})}), s.random({8})});
       }},
      {"scale and root multiplied first",
       [](Sketch& s, Id x) {
         const Id d = s.op("Sub", {x, mean(s, x)});
         const Id r = s.op("Rsqrt", {shifted(s, mean(s, square(s, d, 0)))});
         return s.op("Add", {s.op("Mul", {s.op("Mul", {r, s.random({8})}), d}), s.random({8})});
       }},
      {"half powers, no bias",
       [](Sketch& s, Id x) {
         const Id d = s.op("Sub", {x, mean(s, x)});
         const Id n = s.op("Div", {d, s.op("Pow", {shifted(s, mean(s, square(s, d, 1))), s.number(0.5)})});
         return s.op("Mul", {n, s.random({8})});
       }},
      {"neither scale nor bias",
       [](Sketch& s, Id x) {
         const Id d = s.op("Sub", {x, mean(s, x)});
         return s.op("Div", {d, s.op("Sqrt", {shifted(s, mean(s, square(s, d, 0)))})});
       }},
  };
  for (const Norm& each : spellings) {
    CAPTURE(each.what);
    const ir::Graph after = fused(each);
    CHECK(after.nodes.size() == 1);
    CHECK(the(after, "LayerNormalization").attributes.f64("epsilon") == doctest::Approx(1e-5));
  }
}

TEST_CASE("several trailing axes normalise together") {
  Sketch s;
  const Id x = s.in("x", {sym("batch"), 5, 8});
  const Id d = s.op("Sub", {x, mean(s, x, {1, 2})});
  const Id n = s.op("Div", {d, s.op("Sqrt", {shifted(s, mean(s, square(s, d, 0), {-1, -2}))})});
  s.out(s.op("Add", {s.op("Mul", {n, s.random({5, 8})}), s.random({5, 8})}));
  const ir::Graph after = drop_dead(apply(fuse_layer_norm, s.take(), kNormSymbols));
  CHECK(after.nodes.size() == 1);
}

TEST_CASE("what only resembles layer normalisation stays") {
  const Norm others[] = {
      {"another axis",
       [](Sketch& s, Id x) {
         const Id d = s.op("Sub", {x, mean(s, x, {1})});
         return s.op("Div", {d, s.op("Sqrt", {shifted(s, mean(s, square(s, d, 0), {1}))})});
       }},
      {"mean and variance over different axes",
       [](Sketch& s, Id x) {
         const Id d = s.op("Sub", {x, mean(s, x, {1, 2})});
         return s.op("Div", {d, s.op("Sqrt", {shifted(s, mean(s, square(s, d, 0), {2}))})});
       }},
      {"the third power",
       [](Sketch& s, Id x) {
         const Id d = s.op("Sub", {x, mean(s, x)});
         return s.op("Div",
                     {d, s.op("Sqrt", {s.op("Abs", {shifted(s, mean(s, s.op("Pow", {d, s.number(3)})))})})});
       }},
      {"the variance of something else",
       [](Sketch& s, Id x) {
         const Id d = s.op("Sub", {x, mean(s, x)});
         return s.op("Div", {d, s.op("Sqrt", {shifted(s, mean(s, square(s, s.op("Tanh", {d}), 0)))})});
       }},
      {"the variance of another value",
       [](Sketch& s, Id x) {
         const Id t = s.op("Tanh", {x});
         const Id v = mean(s, square(s, s.op("Sub", {t, mean(s, t)}), 0));
         return s.op("Div", {s.op("Sub", {x, mean(s, x)}), s.op("Sqrt", {shifted(s, v)})});
       }},
      {"a second reader of the variance",
       [](Sketch& s, Id x) {
         const Id d = s.op("Sub", {x, mean(s, x)});
         const Id v = shifted(s, mean(s, square(s, d, 0)));
         s.out(v, "variance");
         return s.op("Div", {d, s.op("Sqrt", {v})});
       }},
  };
  for (const Norm& each : others) {
    CAPTURE(each.what);
    Sketch s;
    s.out(each.build(s, s.in("x", {sym("batch"), 5, 8})));
    CHECK(count(drop_dead(apply(fuse_layer_norm, s.take(), kNormSymbols)), "LayerNormalization") == 0);
  }
}

TEST_CASE("a scale along another axis is no parameter of the normalisation") {
  Sketch s;
  const Id x = s.in("x", {sym("batch"), 8, 8});
  const Id n = s.op("LayerNormalization",
                    {x, s.constant(ir::Tensor::of<double>(ir::DType::kF32, {8}, std::vector<double>(8, 1)))});
  s.out(s.op("Mul", {n, s.random({8, 1})}));
  CHECK(count(drop_dead(apply(fuse_layer_norm, s.take(), kNormSymbols)), "Mul") == 1);
}

Id erf_gate(Sketch& s, Id x) {
  return s.op("Add", {s.op("Erf", {s.op("Div", {x, s.number(std::numbers::sqrt2)})}), s.number(1)});
}
Id tanh_gate(Sketch& s, Id x) {
  const Id cube = s.op("Mul", {s.number(0.044715), s.op("Pow", {x, s.number(3)})});
  const Id inner = s.op("Mul", {s.op("Add", {x, cube}), s.number(std::sqrt(2 / std::numbers::pi))});
  return s.op("Add", {s.number(1), s.op("Tanh", {inner})});
}

TEST_CASE("GELU is found in every order of its factors") {
  struct Case {
    std::string what;
    std::function<Id(Sketch&, Id)> build;
    std::string approximate;
  };
  const Case cases[] = {
      {"x gate half",
       [](Sketch& s, Id x) { return s.op("Mul", {s.op("Mul", {x, erf_gate(s, x)}), s.number(0.5)}); },
       "none"},
      {"half x gate",
       [](Sketch& s, Id x) { return s.op("Mul", {s.op("Mul", {s.number(0.5), x}), erf_gate(s, x)}); },
       "none"},
      {"gate half x",
       [](Sketch& s, Id x) { return s.op("Mul", {s.op("Mul", {erf_gate(s, x), s.number(0.5)}), x}); },
       "none"},
      {"divided by two",
       [](Sketch& s, Id x) { return s.op("Div", {s.op("Mul", {erf_gate(s, x), x}), s.number(2)}); }, "none"},
      {"erf of a product",
       [](Sketch& s, Id x) {
         const Id e = s.op("Erf", {s.op("Mul", {s.number(std::numbers::sqrt2 / 2), x})});
         return s.op("Mul", {x, s.op("Mul", {s.number(0.5), s.op("Add", {s.number(1), e})})});
       },
       "none"},
      {"tanh, third power",
       [](Sketch& s, Id x) { return s.op("Mul", {s.op("Mul", {s.number(0.5), x}), tanh_gate(s, x)}); },
       "tanh"},
      {"tanh, products",
       [](Sketch& s, Id x) {
         const Id cube = s.op("Mul", {s.op("Mul", {s.op("Mul", {x, x}), x}), s.number(0.044715)});
         const Id t =
             s.op("Tanh", {s.op("Mul", {s.number(std::sqrt(2 / std::numbers::pi)), s.op("Add", {cube, x})})});
         return s.op("Mul", {s.op("Mul", {x, s.op("Add", {t, s.number(1)})}), s.number(0.5)});
       },
       "tanh"},
      {"tanh, factored",
       [](Sketch& s, Id x) {
         const Id inner = s.op("Add", {s.number(1), s.op("Mul", {s.op("Mul", {s.number(0.044715), x}), x})});
         const Id outer = s.op("Mul", {s.op("Mul", {x, s.number(std::sqrt(2 / std::numbers::pi))}), inner});
         return s.op("Mul",
                     {s.op("Mul", {s.number(0.5), x}), s.op("Add", {s.number(1), s.op("Tanh", {outer})})});
       },
       "tanh"},
  };
  for (const Case& each : cases) {
    CAPTURE(each.what);
    Sketch s;
    s.out(each.build(s, s.in("x", {sym("batch"), 8})));
    const ir::Graph after = drop_dead(apply(fuse_gelu, s.take(), kNormSymbols));
    CHECK(after.nodes.size() == 1);
    CHECK(the(after, "Gelu").attributes.str("approximate") == each.approximate);
  }
}

TEST_CASE("what only resembles GELU stays") {
  using Build = std::function<Id(Sketch&, Id)>;
  const Build builds[] = {
      [](Sketch& s, Id x) { return s.op("Mul", {s.op("Mul", {x, erf_gate(s, x)}), s.number(0.25)}); },
      [](Sketch& s, Id x) {
        return s.op("Mul", {s.op("Mul", {s.op("Neg", {x}), erf_gate(s, x)}), s.number(0.5)});
      },
      [](Sketch& s, Id x) {
        const Id gate = s.op("Add", {s.op("Erf", {s.op("Div", {x, s.number(1.5)})}), s.number(1)});
        return s.op("Mul", {s.op("Mul", {x, gate}), s.number(0.5)});
      },
      [](Sketch& s, Id x) {
        const Id gate = erf_gate(s, x);
        s.out(gate, "gate");
        return s.op("Mul", {s.op("Mul", {x, gate}), s.number(0.5)});
      },
      [](Sketch& s, Id x) {
        return s.op(
            "Mul",
            {s.op("Mul", {x, erf_gate(s, x)}),
             s.constant(ir::Tensor::of<double>(ir::DType::kF32, {1, 1, 1}, std::vector<double>{0.5}))});
      },
  };
  for (const Build& build : builds) {
    Sketch s;
    s.out(build(s, s.in("x", {sym("batch"), 8})));
    CHECK(count(drop_dead(apply(fuse_gelu, s.take(), kNormSymbols)), "Gelu") == 0);
  }
}

TEST_CASE("root-mean-square normalisation is found in its usual spellings") {
  const Norm spellings[] = {
      {"times the inverse root, weight first",
       [](Sketch& s, Id x) {
         const Id r = s.op("Rsqrt", {shifted(s, mean(s, square(s, x, 0)))});
         return s.op("Mul", {s.random({8}), s.op("Mul", {x, r})});
       }},
      {"times one over the root",
       [](Sketch& s, Id x) {
         const Id root = s.op("Sqrt", {shifted(s, mean(s, square(s, x, 1)))});
         return s.op("Mul", {s.op("Mul", {s.op("Div", {s.number(1), root}), x}), s.random({1, 8})});
       }},
      {"divided by the root, without a weight",
       [](Sketch& s, Id x) {
         return s.op("Div", {x, s.op("Sqrt", {shifted(s, mean(s, square(s, x, 2)))})});
       }},
  };
  for (const Norm& each : spellings) {
    CAPTURE(each.what);
    const ir::Graph after = fused(each);
    CHECK(after.nodes.size() == 1);
    CHECK(count(after, "RMSNormalization") == 1);
  }
  Sketch s;  // another value's root
  const Id x = s.in("x", {sym("batch"), 8}), z = s.in("z", {sym("batch"), 8});
  s.out(s.op("Div", {x, s.op("Sqrt", {shifted(s, mean(s, square(s, z, 2)))})}));
  CHECK(count(apply(fuse_layer_norm, s.take(), kNormSymbols), "RMSNormalization") == 0);
}

}  // namespace
}  // namespace heddle::plan
