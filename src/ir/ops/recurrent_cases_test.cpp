#include <cmath>

#include "ir/ops/cases.h"

// One hidden unit and functions that keep whole numbers, so that every step can be followed by hand.

namespace heddle::ir {

namespace {

const Attributes kRelu = {{"activations", text_of("Relu")}};

void add_sequences(std::vector<Case>& all) {
  const Sample x = f32({kS, kB, 1}, {1, 10, 2, 20, 3, 30});
  const Sample w = f32({1, 1, 1}, {2}), r = f32({1, 1, 1}, {1});
  Attributes backward = kRelu;
  backward.set("direction", text_of("reverse"));
  all.push_back({"RNN",
                 {x, w, r},
                 kRelu,
                 {f32({kS, 1, kB, 1}, {2, 20, 6, 60, 12, 120}), f32({1, 1, kB, 1}, {12, 120})}});
  all.push_back({"RNN",
                 {x, w, r},
                 backward,
                 {f32({kS, 1, kB, 1}, {12, 120, 10, 100, 6, 60}), f32({1, 1, kB, 1}, {12, 120})}});
  const Sample lengths = i32({kB}, {2, 3});
  all.push_back({"RNN",
                 {x, f32({2, 1, 1}, {2, 2}), f32({2, 1, 1}, {1, 1}), none(), lengths},
                 {{"activations", text_of("Relu,relu")}, {"direction", text_of("bidirectional")}},
                 {f32({kS, 2, kB, 1}, {2, 20, 6, 120, 6, 60, 4, 100, 0, 120, 0, 60}),
                  f32({1, 2, kB, 1}, {6, 120, 6, 120})}});
  const Sample once = f32({1, 1, 1}, {1}), three = f32({1, 1, 1}, {3}), four = f32({1, 1, 1}, {4});
  Attributes clipped = kRelu;
  clipped.set("clip", 5.0);
  all.push_back({"RNN",
                 {once, w, three, f32({1, 2}, {1, 2}), none(), four},
                 kRelu,
                 {f32({1, 1, 1, 1}, {17}), f32({1, 1, 1, 1}, {17})}});
  all.push_back(
      {"RNN", {once, w, three, f32({1, 2}, {1, 2}), none(), four}, clipped, {f32({1, 1, 1, 1}, {5})}});
  all.push_back({"RNN", {once, w, three}, {}, {f32({1, 1, 1, 1}, {std::tanh(2.0)})}});
  Attributes scaled = {{"activations", text_of("ScaledTanh")},
                       {"activation_alpha", std::vector<double>{3}},
                       {"activation_beta", std::vector<double>{0.5}}};
  all.push_back({"RNN", {once, w, three}, scaled, {f32({1, 1, 1, 1}, {3 * std::tanh(1.0)})}});
}

void add_gates(std::vector<Case>& all) {
  const Sample x = f32({1, 1, 1}, {1}), two = f32({1, 1, 1}, {2}), one = f32({1, 1, 1}, {1});
  const Attributes plain = {{"activations", text_of("Affine,Affine")}};
  Attributes after = plain;
  after.set("linear_before_reset", i(1));
  const Sample w = f32({1, 3, 1}, {1, 2, 3}), r = f32({1, 3, 1}, {1, 1, 2});
  const Sample b = f32({1, 6}, {0, 0, 1, 0, 0, 5});
  all.push_back(
      {"GRU", {x, w, r, none(), none(), two}, plain, {f32({1, 1, 1, 1}, {-32}), f32({1, 1, 1, 1}, {-32})}});
  all.push_back({"GRU", {x, w, r, b, none(), two}, after, {f32({1, 1, 1, 1}, {-74})}});
  all.push_back({"GRU",
                 {x, f32({1, 3, 1}, {0, 0, 0}), r, none(), none(), none()},
                 {{"hidden_size", i(1)}},
                 {f32({1, 1, 1, 1}, {0})}});

  const Attributes open = {{"activations", text_of("Affine,Affine,Affine")}};
  Attributes coupled = open;
  coupled.set("input_forget", i(1));
  const Sample w4 = f32({1, 4, 1}, {1, 2, 3, 4}), r4 = f32({1, 4, 1}, {1, 1, 1, 1});
  const Sample p = f32({1, 3}, {1, 2, 3});
  const auto state = [](double value) { return f32({1, 1, 1, 1}, {value}); };
  all.push_back({"LSTM", {x, w4, r4, none(), none(), one, two}, open, {state(54), state(54), state(18)}});
  all.push_back(
      {"LSTM", {x, w4, r4, none(), none(), one, two, p}, open, {state(3320), state(3320), state(40)}});
  all.push_back({"LSTM", {x, w4, r4, none(), none(), one, two}, coupled, {state(24), state(24), state(8)}});
  all.push_back({"LSTM",
                 {f32({1, kB, 1}, {5, 6}), f32({1, 4, 1}, {0, 0, 0, 0}), f32({1, 4, 1}, {0, 0, 0, 0}), none(),
                  i64({kB}, {1, 0}), none(), f32({1, kB, 1}, {2, 2})},
                 {},
                 {f32({1, 1, kB, 1}, {0.5 * std::tanh(1.0), 0}),
                  f32({1, 1, kB, 1}, {0.5 * std::tanh(1.0), 0}), f32({1, 1, kB, 1}, {1, 2})}});
}

// Two heads read one state of one number, which begins at 1.
void add_linear_attention(std::vector<Case>& all) {
  const Sample q = f32({kB, 2, 2}, {1, 2, 3, 4, 0, 0, 1, 1}), k = f32({kB, 2, 1}, {1, 2, 1, 3});
  const Sample v = f32({kB, 2, 1}, {5, 6, 7, 8}), past = f32({kB, 1, 1, 1}, {1, 1});
  const Sample decay = f32({kB, 2, 1}, {0, std::log(2.0), 0, 0}), beta = f32({kB, 2, 1}, {1, 0.5, 1, 1});
  const auto form = [](const char* rule) {
    return Attributes{{"q_num_heads", i(2)}, {"kv_num_heads", i(1)}, {"update_rule", text_of(rule)}};
  };
  const auto y = [](std::vector<double> values) { return f32({kB, 2, 2}, std::move(values)); };
  const auto state = [](double a, double b) { return f32({kB, 1, 1, 1}, {a, b}); };
  all.push_back({"LinearAttention",
                 {q, k, v, past},
                 form("linear"),
                 {y({6, 12, 54, 72, 0, 0, 32, 32}), state(18, 32)}});
  all.push_back({"LinearAttention",
                 {q, k, v, past, decay},
                 form("gated"),
                 {y({6, 12, 72, 96, 0, 0, 32, 32}), state(24, 32)}});
  all.push_back({"LinearAttention",
                 {q, k, v, past, none(), beta},
                 form("delta"),
                 {y({5, 10, 3, 4, 0, 0, -32, -32}), state(1, -32)}});
  Attributes scaled = form("gated_delta");
  scaled.set("scale", 2.0);
  all.push_back({"LinearAttention",
                 {q, k, v, none(), decay, beta},
                 scaled,
                 {y({10, 20, -24, -32, 0, 0, -64, -64}), state(-4, -32)}});
}

}  // namespace

std::vector<Case> recurrent_cases() {
  std::vector<Case> all;
  add_sequences(all);
  add_gates(all);
  add_linear_attention(all);
  return all;
}

}  // namespace heddle::ir
