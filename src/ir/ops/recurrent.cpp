// RNN, GRU and LSTM over whole sequences.
//
// Inputs x [T, B, I], w [D, G*H, I], r [D, G*H, H], b [D, 2*G*H], sequence_lens [B], initial_h [D, B, H] and
// for LSTM initial_c [D, B, H], p [D, 3*H]; outputs y [T, D, B, H] and the last states [1, D, B, H]. So the
// batch is axis 2 of every output (ONNX's states lack the first axis). Steps beyond an example's length give
// zeros and leave its state; a backward direction begins at the example's own end.
#include <algorithm>
#include <cmath>

#include "ir/ops/rules.h"
#include "ir/ops/tables.h"
#include "ir/ops/walk.h"
#include "ir/recurrent.h"

namespace heddle::ir {

namespace {

enum RecurrentInput : size_t { kX, kW, kR, kB, kLengths, kH0, kC0, kP };

Inferred infer_recurrent(const Node& node, Operands in) {
  HEDDLE_TRY_ASSIGN(const Recurrent rec, Recurrent::of(node));
  HEDDLE_TRY(accept(*in[kX], "x", Accept::kFloat));
  for (const size_t i : {kX, kW, kR})
    HEDDLE_TRY(check_rank(*in[i], i == kX ? "x" : i == kW ? "w" : "r", 3, 3));
  const Shape& x = in[kX]->type.shape;
  const Dim& hidden = in[kR]->type.shape[2];
  const Dim directions(rec.directions), rows = hidden * Dim(rec.gates);
  HEDDLE_TRY(check_shape(*in[kW], "w", {directions, rows, x[2]}));
  HEDDLE_TRY(check_shape(*in[kR], "r", {directions, rows, hidden}));
  if (node.attributes.has("hidden_size") && hidden.is_static() &&
      hidden.value() != node.attributes.i64("hidden_size")) {
    return Status::invalid("attribute 'hidden_size' is ", node.attributes.i64("hidden_size"), "; r is ",
                           in[kR]->type);
  }
  const Shape state = {directions, x[1], hidden};
  const struct {
    size_t input;
    std::string_view name;
    Shape shape;
  } optional[] = {{kB, "b", {directions, rows * Dim(2)}},
                  {kH0, "initial_h", state},
                  {kC0, "initial_c", state},
                  {kP, "p", {directions, hidden * Dim(3)}}};
  for (const size_t i : {kW, kR}) HEDDLE_TRY(same_dtype(*in[kX], "x", *in[i], i == kW ? "w" : "r"));
  for (const auto& o : optional) {
    const Value* given = optional_input(in, o.input);
    if (given == nullptr) continue;
    HEDDLE_TRY(same_dtype(*in[kX], "x", *given, o.name));
    HEDDLE_TRY(check_shape(*given, o.name, o.shape));
  }
  if (const Value* lengths = optional_input(in, kLengths)) {
    HEDDLE_TRY(accept(*lengths, "sequence_lens", Accept::kIndex));
    HEDDLE_TRY(check_shape(*lengths, "sequence_lens", {x[1]}));
  }
  const DType dtype = in[kX]->type.dtype;
  std::vector<Value> out;
  out.push_back(typed(dtype, {x[0], directions, x[1], hidden}));
  while (out.size() < node.outputs.size()) out.push_back(typed(dtype, {Dim(1), directions, x[1], hidden}));
  return out;
}

struct Weights {
  std::vector<double> w, r, b, p;
  int64_t inputs, hidden, gates;

  // Row g of the gates: x * w' of direction d.
  double input_sum(const std::vector<double>& x, int64_t at, int64_t d, int64_t row) const {
    double sum = 0;
    const int64_t first = (d * gates * hidden + row) * inputs;
    for (int64_t i = 0; i < inputs; ++i)
      sum += x[static_cast<size_t>(at + i)] * w[static_cast<size_t>(first + i)];
    return sum;
  }
  double state_sum(const std::vector<double>& h, int64_t d, int64_t row) const {
    double sum = 0;
    const int64_t first = (d * gates * hidden + row) * hidden;
    for (int64_t i = 0; i < hidden; ++i) sum += h[static_cast<size_t>(i)] * r[static_cast<size_t>(first + i)];
    return sum;
  }
  double bias(int64_t d, int64_t row, bool recurrent) const {
    const int64_t half = gates * hidden;
    return b.empty() ? 0 : b[static_cast<size_t>(d * 2 * half + (recurrent ? half : 0) + row)];
  }
  double peephole(int64_t d, int64_t gate, int64_t j) const {
    return p.empty() ? 0 : p[static_cast<size_t>((d * 3 + gate) * hidden + j)];
  }
};

// One time step of one example.
class Stepper {
 public:
  Stepper(const Recurrent& rec, const Weights& weights) : r_(rec), w_(weights) {}

  void step(const std::vector<double>& x, int64_t at, int64_t d, std::vector<double>& h,
            std::vector<double>& c) const {
    switch (r_.cell) {
      case Cell::kRnn:
        return rnn(x, at, d, h);
      case Cell::kGru:
        return gru(x, at, d, h);
      case Cell::kLstm:
        return lstm(x, at, d, h, c);
    }
  }

 private:
  double apply(int64_t d, size_t function, double x) const {
    return r_.activation(d, function)(std::clamp(x, -r_.clip, r_.clip));
  }
  double sums(const std::vector<double>& x, int64_t at, int64_t d, const std::vector<double>& h,
              int64_t row) const {
    return w_.input_sum(x, at, d, row) + w_.state_sum(h, d, row) + w_.bias(d, row, false) +
           w_.bias(d, row, true);
  }

  void rnn(const std::vector<double>& x, int64_t at, int64_t d, std::vector<double>& h) const {
    const std::vector<double> old = h;
    for (int64_t j = 0; j < w_.hidden; ++j) h[static_cast<size_t>(j)] = apply(d, 0, sums(x, at, d, old, j));
  }

  void gru(const std::vector<double>& x, int64_t at, int64_t d, std::vector<double>& h) const {
    const int64_t n = w_.hidden;
    const std::vector<double> old = h;
    std::vector<double> reset(old), z(old);
    for (int64_t j = 0; j < n; ++j) {
      const auto k = static_cast<size_t>(j);
      z[k] = apply(d, 0, sums(x, at, d, old, j));
      reset[k] = apply(d, 0, sums(x, at, d, old, n + j));
    }
    std::vector<double> left(old);
    for (size_t k = 0; k < left.size(); ++k) left[k] *= reset[k];
    for (int64_t j = 0; j < n; ++j) {
      const auto k = static_cast<size_t>(j);
      const int64_t row = 2 * n + j;
      const double recurrent = r_.linear_before_reset
                                   ? reset[k] * (w_.state_sum(old, d, row) + w_.bias(d, row, true))
                                   : w_.state_sum(left, d, row) + w_.bias(d, row, true);
      const double fresh = apply(d, 1, w_.input_sum(x, at, d, row) + w_.bias(d, row, false) + recurrent);
      h[k] = (1 - z[k]) * fresh + z[k] * old[k];
    }
  }

  void lstm(const std::vector<double>& x, int64_t at, int64_t d, std::vector<double>& h,
            std::vector<double>& c) const {
    const int64_t n = w_.hidden;
    const std::vector<double> old = h;
    for (int64_t j = 0; j < n; ++j) {
      const auto k = static_cast<size_t>(j);
      const double i = apply(d, 0, sums(x, at, d, old, j) + w_.peephole(d, 0, j) * c[k]);
      const double f =
          r_.input_forget ? 1 - i : apply(d, 0, sums(x, at, d, old, 2 * n + j) + w_.peephole(d, 2, j) * c[k]);
      c[k] = f * c[k] + i * apply(d, 1, sums(x, at, d, old, 3 * n + j));
      const double o = apply(d, 0, sums(x, at, d, old, n + j) + w_.peephole(d, 1, j) * c[k]);
      h[k] = o * apply(d, 2, c[k]);
    }
  }

  const Recurrent& r_;
  const Weights& w_;
};

std::vector<double> optional_doubles(DataIn in, size_t i) {
  const Tensor* t = optional_input(in, i);
  return t == nullptr ? std::vector<double>() : doubles(*t);
}

Status reference_recurrent(const Node& node, DataIn in, DataOut out) {
  HEDDLE_TRY_ASSIGN(const Recurrent rec, Recurrent::of(node));
  const Extents& x = in[kX]->extents();
  const int64_t steps = x[0], batch = x[1], hidden = in[kR]->extents()[2];
  const Weights weights{
      doubles(*in[kW]), doubles(*in[kR]), optional_doubles(in, kB), optional_doubles(in, kP), x[2],
      hidden,           rec.gates};
  const std::vector<double> input = doubles(*in[kX]);
  const std::vector<double> h0 = optional_doubles(in, kH0), c0 = optional_doubles(in, kC0);
  const Tensor* lengths = optional_input(in, kLengths);
  const Stepper stepper(rec, weights);
  const auto initial = [&](const std::vector<double>& from, int64_t row) {
    std::vector<double> state(static_cast<size_t>(hidden), 0.0);
    if (!from.empty()) std::copy_n(from.begin() + row * hidden, hidden, state.begin());
    return state;
  };
  for (int64_t row = 0; row < rec.directions * batch; ++row) {
    const int64_t d = row / batch, b = row % batch;
    std::vector<double> h = initial(h0, row), c = initial(c0, row);
    const int64_t length = lengths == nullptr ? steps : lengths->get_i64(b);
    if (length < 0 || length > steps)
      return Status::invalid("sequence_lens holds ", length, "; it has to be 0 to ", steps);
    for (int64_t s = 0; s < length; ++s) {
      const int64_t t = rec.backward(d) ? length - 1 - s : s;
      stepper.step(input, (t * batch + b) * x[2], d, h, c);
      for (int64_t j = 0; j < hidden; ++j)
        out[0].set((t * rec.directions * batch + row) * hidden + j, h[static_cast<size_t>(j)]);
    }
    for (size_t o = 1; o < out.size(); ++o) {
      const std::vector<double>& state = o == 1 ? h : c;
      for (int64_t j = 0; j < hidden; ++j) out[o].set(row * hidden + j, state[static_cast<size_t>(j)]);
    }
  }
  return {};
}

}  // namespace

std::vector<OpDef> recurrent_ops() {
  using enum AttributeKind;
  const std::vector<AttributeDef> shared = {{"direction", kString},       {"hidden_size", kInt},
                                            {"activations", kString},     {"activation_alpha", kFloats},
                                            {"activation_beta", kFloats}, {"clip", kFloat}};
  const auto with = [&](AttributeDef own) {
    std::vector<AttributeDef> all = shared;
    all.push_back(own);
    return all;
  };
  return {
      {"RNN", 3, 6, 1, 2, shared, infer_recurrent, reference_recurrent},
      {"GRU", 3, 6, 1, 2, with({"linear_before_reset", kInt}), infer_recurrent, reference_recurrent},
      {"LSTM", 3, 8, 1, 3, with({"input_forget", kInt}), infer_recurrent, reference_recurrent},
  };
}

}  // namespace heddle::ir
