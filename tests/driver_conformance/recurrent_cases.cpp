#include "op_cases_fixture.h"

namespace heddle::conformance {
namespace {

using S = std::string;

struct Net {
  std::string_view op;
  I gates;
  size_t states;
};
constexpr Net kNets[] = {{"RNN", 1, 1}, {"GRU", 3, 1}, {"LSTM", 4, 2}};

In lengths(I batch, I most) { return {{batch}, 0, static_cast<double>(most), DType::kI32, false, {}, false}; }

struct Size {
  I steps, batch, inputs, hidden;
};

// Everything given: biases, lengths, states and, for LSTM, peepholes.
Case full(const Net& net, Size s, const char* direction, bool constant) {
  const I d = S(direction) == "bidirectional" ? 2 : 1;
  const auto w = [&](Extents e) { return constant ? weight(e, -0.5, 0.5) : T(e, -0.5, 0.5); };
  Case c{
      net.op,
      {T({s.steps, s.batch, s.inputs}), w({d, net.gates * s.hidden, s.inputs}),
       w({d, net.gates * s.hidden, s.hidden}), w({d, 2 * net.gates * s.hidden}), lengths(s.batch, s.steps)},
      {{"direction", S(direction)}},
      kFloats,
      1 + net.states};
  for (size_t i = 0; i < net.states; ++i) c.in.push_back(T({d, s.batch, s.hidden}));
  if (net.states == 2) c.in.push_back(w({d, 3 * s.hidden}));
  return c;
}

// The weights of the state are small enough that a wide RNN forgets: one that does not is chaotic, and
// doubles the last bit's error at each step.
Case plain(const Net& net, Size s, ir::Attributes attributes, I directions = 1) {
  const double r = s.hidden > 20 ? 0.1 : 0.5;
  return {net.op,
          {T({s.steps, s.batch, s.inputs}), weight({directions, net.gates * s.hidden, s.inputs}, -0.5, 0.5),
           weight({directions, net.gates * s.hidden, s.hidden}, -r, r)},
          std::move(attributes),
          kF32,
          1 + net.states};
}

}  // namespace

void add_recurrent_cases(std::vector<Case>& cases) {
  for (const Net& net : kNets) {
    for (const char* direction : {"forward", "reverse", "bidirectional"}) {
      cases.push_back(full(net, {5, 3, 4, 6}, direction, true));
      cases.push_back(full(net, {4, 2, 3, 5}, direction, false));
    }
    cases.push_back(plain(net, {7, 1, 3, 17}, {}));
    cases.push_back(plain(net, {0, 2, 3, 4}, {}));
    cases.push_back(plain(net, {2, 0, 3, 4}, {}));
    cases.push_back(plain(net, {3, 2, 3, 4}, {{"clip", 0.4}}));
    cases.push_back(plain(net, {9, 9, 33, 20}, {}));  // no multiples of a kernel's tiles
    // Large enough to be shared by the batch, and by directions.
    cases.push_back(plain(net, {9, 5, 32, 96}, {}));
    cases.push_back(plain(net, {40, 1, 32, 96}, {{"direction", S("bidirectional")}}, 2));
  }
  Case after = full(kNets[1], {5, 3, 4, 6}, "bidirectional", true);
  after.attributes.set("linear_before_reset", I{1});
  cases.push_back(after);
  Case coupled = full(kNets[2], {5, 3, 4, 6}, "forward", true);
  coupled.attributes.set("input_forget", I{1});
  cases.push_back(coupled);
  const ir::Attributes other = {{"activations", S("HardSigmoid,ScaledTanh,Softsign")},
                                {"activation_alpha", std::vector<double>{0.3, 1.5}},
                                {"activation_beta", std::vector<double>{0.4, 0.7}}};
  cases.push_back(plain(kNets[2], {4, 3, 5, 7}, other));
  cases.push_back(plain(kNets[1], {4, 3, 5, 7}, {{"activations", S("Sigmoid,LeakyRelu")}}));
  cases.push_back(
      plain(kNets[1], {4, 3, 5, 7}, {{"activations", S("HardSigmoid,Elu")}, {"linear_before_reset", I{1}}}));
  cases.push_back(plain(kNets[0], {4, 3, 5, 7}, {{"activations", S("Softplus")}}));
  for (const char* rule : {"linear", "gated", "delta", "gated_delta"}) {
    const bool gated = rule[0] == 'g', corrected = std::string_view(rule).ends_with("delta");
    cases.push_back({"LinearAttention",
                     {T({2, 5, 12}), T({2, 5, 6}, -0.5, 0.5), T({2, 5, 8}), T({2, 2, 3, 4}),
                      gated ? T({2, 5, corrected ? 2 : 6}, -2, 0) : none(),
                      corrected ? T({2, 5, gated ? 1 : 2}, 0, 1) : none()},
                     {{"q_num_heads", I{4}}, {"kv_num_heads", I{2}}, {"update_rule", S(rule)}},
                     kFloats,
                     2});
  }
  cases.push_back({"LinearAttention",
                   {T({2, 19, 3 * 40}, -0.3, 0.3), T({2, 19, 40}, -0.3, 0.3), T({2, 19, 70}),
                    f32s({2, 1, 40, 70}), T({2, 19, 1}, -2, 0), T({2, 19, 1}, 0, 1)},
                   {{"q_num_heads", I{3}}, {"kv_num_heads", I{1}}, {"scale", 0.7}},
                   kFloats,
                   2});
}

}  // namespace heddle::conformance
