// RNN, GRU and LSTM, and LinearAttention: states that go from position to position.
#include <cmath>

#include "drivers/metal/lowering/products.h"
#include "drivers/metal/lowering/repeat.h"
#include "ir/recurrent.h"

namespace heddle::metal {
namespace {

enum Input : size_t { kX, kW, kR, kB, kLengths, kH0, kC0, kP };

Tensor apply(const Emit& e, const ir::CellActivation& a, Tensor x) {
  using enum ir::CellFunction;
  Tensor zero = e.like(0, x), one = e.like(1, x);
  const auto number = [&](double value) { return e.like(value, x); };
  switch (a.function) {
    case kSigmoid:
      return e.sigmoid(x);
    case kTanh:
      return e.tanh(x);
    case kRelu:
      return e.max(x, zero);
    case kAffine:
      return e.add(e.mul(x, number(a.alpha)), number(a.beta));
    case kLeakyRelu:
      return e.choose(e.less(x, zero), e.mul(x, number(a.alpha)), x);
    case kThresholdedRelu:
      return e.choose(e.less(x, number(a.alpha)), zero, x);
    case kScaledTanh:
      return e.mul(number(a.alpha), e.tanh(e.mul(number(a.beta), x)));
    case kHardSigmoid:
      return e.clamp(e.add(e.mul(x, number(a.alpha)), number(a.beta)), 0, 1);
    case kElu:
      return e.choose(e.less(x, zero), e.mul(number(a.alpha), e.sub(e.exp(e.min(x, zero)), one)), x);
    case kSoftsign:
      return e.div(x, e.add(one, e.abs(x)));
    case kSoftplus:
      return e.add(e.max(x, zero), e.log(e.add(one, e.exp(e.negate(e.abs(x))))));
  }
  return x;
}

// One direction: what its steps share.
class Direction {
 public:
  Direction(Lowering& l, const ir::Recurrent& rec, int64_t d)
      : l_(l),
        e_(l.emit),
        rec_(rec),
        d_(d),
        steps_(l.extents(kX)[0]),
        batch_(l.extents(kX)[1]),
        hidden_(l.extents(kR)[2]) {
    const int64_t rows = rec.gates * hidden_, inputs = l.extents(kX)[2];
    Tensor w = e_.swap_last(e_.reshape(of_direction(kW), {rows, inputs}));
    sums_ = product(l, e_.reshape(l.inputs[kX], {steps_ * batch_, inputs}), w);
    recurrent_ = e_.swap_last(e_.reshape(of_direction(kR), {rows, hidden_}));
    if (l.has(kB)) {
      Tensor b = e_.reshape(of_direction(kB), {1, 2 * rows});
      sums_ = e_.add(sums_, e_.slice(b, 1, 0, rows));
      bias_ = e_.slice(b, 1, rows, rows);
    }
    sums_ = e_.reshape(sums_, {steps_, batch_, rows});
    if (l.has(kP)) peepholes_ = e_.reshape(of_direction(kP), {1, 3 * hidden_});
  }

  // Outputs [steps, batch, hidden], last h, last c (nil but for LSTM).
  Result<Iteration> run(Tensor lengths) {
    std::vector<Tensor> carried{initial(kH0)};
    if (rec_.cell == ir::Cell::kLstm) carried.push_back(initial(kC0));
    const bool backward = rec_.backward(d_);
    const IterationBody body = [&](Tensor number, const std::vector<Tensor>& state) -> Result<Iteration> {
      Tensor last = e_.whole(steps_ - 1, ir::DType::kI32);
      Tensor t = backward ? e_.sub(last, number) : number;
      Tensor sums = e_.reshape(e_.gather(sums_, t, 0), {batch_, rec_.gates * hidden_});
      std::vector<Tensor> next = step(sums, state);
      Tensor out = next[0];
      if (lengths != nil) {
        Tensor runs = e_.less(t, lengths);  // [batch, 1]
        out = e_.choose(runs, out, e_.like(0, out));
        for (size_t i = 0; i < next.size(); ++i) next[i] = e_.choose(runs, next[i], state[i]);
      }
      return Iteration{next, {out}};
    };
    HEDDLE_TRY_ASSIGN(Iteration iteration, repeat(l_.work, e_, steps_, carried, body));
    if (backward) iteration.stacked[0] = e_.reverse(iteration.stacked[0], 0);
    return iteration;
  }

 private:
  Tensor of_direction(size_t input) const { return e_.slice(l_.inputs[input], 0, d_, 1); }
  Tensor initial(size_t input) const {
    if (!l_.has(input)) return e_.filled(0, dtype_of(sums_), {batch_, hidden_});
    return e_.reshape(of_direction(input), {batch_, hidden_});
  }
  Tensor gate(Tensor all, int64_t i) const { return e_.slice(all, 1, i * hidden_, hidden_); }
  Tensor activated(size_t function, Tensor x) const {
    if (std::isfinite(rec_.clip)) x = e_.clamp(x, -rec_.clip, rec_.clip);
    return apply(e_, rec_.activation(d_, function), x);
  }
  Tensor with_bias(Tensor x, int64_t from, int64_t count) const {
    return bias_ == nil ? x : e_.add(x, e_.slice(bias_, 1, from * hidden_, count * hidden_));
  }
  Tensor seen(Tensor x, Tensor c, int64_t peephole) const {
    return peepholes_ == nil ? x : e_.add(x, e_.mul(c, gate(peepholes_, peephole)));
  }

  std::vector<Tensor> step(Tensor sums, const std::vector<Tensor>& state) const {
    switch (rec_.cell) {
      case ir::Cell::kRnn:
        return {activated(0, e_.add(sums, with_bias(product(l_, state[0], recurrent_), 0, 1)))};
      case ir::Cell::kGru:
        return {gru(sums, state[0])};
      case ir::Cell::kLstm:
        return lstm(sums, state[0], state[1]);
    }
    return state;
  }

  Tensor gru(Tensor sums, Tensor h) const {
    const auto recurrent = [&](Tensor from, int64_t first, int64_t count) {
      Tensor weights = e_.slice(recurrent_, 1, first * hidden_, count * hidden_);
      return with_bias(product(l_, from, weights), first, count);
    };
    Tensor both = e_.add(e_.slice(sums, 1, 0, 2 * hidden_), recurrent(h, 0, 2));
    Tensor z = activated(0, gate(both, 0)), reset = activated(0, gate(both, 1));
    Tensor past =
        rec_.linear_before_reset ? e_.mul(reset, recurrent(h, 2, 1)) : recurrent(e_.mul(reset, h), 2, 1);
    Tensor fresh = activated(1, e_.add(gate(sums, 2), past));
    return e_.add(e_.mul(e_.sub(e_.like(1, z), z), fresh), e_.mul(z, h));
  }

  // Gates i, o, f, c; peepholes i, o, f.
  std::vector<Tensor> lstm(Tensor sums, Tensor h, Tensor c) const {
    Tensor all = e_.add(sums, with_bias(product(l_, h, recurrent_), 0, 4));
    Tensor in = activated(0, seen(gate(all, 0), c, 0));
    Tensor forget = rec_.input_forget ? e_.sub(e_.like(1, in), in) : activated(0, seen(gate(all, 2), c, 2));
    Tensor cell = e_.add(e_.mul(forget, c), e_.mul(in, activated(1, gate(all, 3))));
    Tensor out = activated(0, seen(gate(all, 1), cell, 1));
    return {e_.mul(out, activated(2, cell)), cell};
  }

  Lowering& l_;
  const Emit& e_;
  const ir::Recurrent& rec_;
  int64_t d_, steps_, batch_, hidden_;
  Tensor sums_ = nil, recurrent_ = nil, bias_ = nil, peepholes_ = nil;
};

Tensor lengths_of(Lowering& l) {
  const Emit& e = l.emit;
  if (!l.has(kLengths)) return nil;
  const int64_t steps = l.extents(kX)[0], batch = l.extents(kX)[1];
  Tensor lengths = l.inputs[kLengths];
  Tensor zero = e.whole(0, dtype_of(lengths)), all = e.whole(steps, dtype_of(lengths));
  Tensor wrong = e.either(e.less(lengths, zero), e.greater(lengths, all));
  l.mistakes.push_back({wrong, kLengths, text("a length is outside [0, ", steps, "]")});
  return e.reshape(e.cast(e.choose(wrong, zero, lengths), ir::DType::kI32), {batch, 1});
}

Status lower_recurrent(Lowering& l) {
  const Emit& e = l.emit;
  HEDDLE_TRY_ASSIGN(const ir::Recurrent rec, ir::Recurrent::of(l.node));
  const int64_t steps = l.extents(kX)[0], batch = l.extents(kX)[1], hidden = l.extents(kR)[2];
  Tensor lengths = lengths_of(l);
  std::vector<std::vector<Tensor>> parts(3);
  for (int64_t d = 0; d < rec.directions; ++d) {
    HEDDLE_TRY_ASSIGN(const Iteration iteration, Direction(l, rec, d).run(lengths));
    parts[0].push_back(e.reshape(iteration.stacked[0], {steps, 1, batch, hidden}));
    for (size_t i = 0; i < iteration.carried.size(); ++i)
      parts[1 + i].push_back(e.reshape(iteration.carried[i], {1, batch, hidden}));
  }
  l.outputs[0] = e.concat(parts[0], 1);
  for (size_t i = 1; i < l.outputs.size(); ++i) l.outputs[i] = e.concat(parts[i], 0);
  return {};
}

enum LinearInput : size_t { kQuery, kKey, kValue, kPast, kDecay, kBeta };

// The state [batch, heads, size, value size] goes from position to position.
Status lower_linear_attention(Lowering& l) {
  const Emit& e = l.emit;
  const int64_t readers = l.attributes().i64("q_num_heads"), heads = l.attributes().i64("kv_num_heads");
  const ir::Extents q = l.extents(kQuery);
  const int64_t batch = q[0], steps = q[1], size = q[2] / readers, value_size = l.extents(kValue)[2] / heads;
  const double given = l.attributes().f64("scale");
  const double scale = given != 0 ? given : 1 / std::sqrt(static_cast<double>(size));
  // Of position t: [batch, heads, its elements of one head]; a factor may have one for all heads.
  const auto at = [&](size_t input, Tensor t, int64_t of_heads) {
    const int64_t each = l.extents(input)[2] / of_heads;
    return e.reshape(e.gather(l.inputs[input], t, 1), {batch, of_heads, each});
  };
  const IterationBody body = [&](Tensor t, const std::vector<Tensor>& carried) -> Result<Iteration> {
    Tensor state = carried[0];
    Tensor key = e.reshape(at(kKey, t, heads), {batch, heads, size, 1});
    Tensor value = e.reshape(at(kValue, t, heads), {batch, heads, 1, value_size});
    if (l.has(kDecay)) {
      const int64_t each = l.extents(kDecay)[2] / heads;
      state = e.mul(state, e.exp(e.reshape(at(kDecay, t, heads), {batch, heads, each, 1})));
    }
    if (l.has(kBeta)) {
      const int64_t rates = l.extents(kBeta)[2];
      Tensor rate = e.reshape(at(kBeta, t, rates), {batch, rates, 1, 1});
      value = e.mul(e.sub(value, e.sum(e.mul(state, key), {2})), rate);
    }
    state = e.add(state, e.mul(key, value));
    Tensor queries = e.reshape(at(kQuery, t, readers), {batch, heads, readers / heads, size});
    Tensor out = e.mul(product(l, queries, state), e.like(scale, state));
    return Iteration{{state}, {e.reshape(out, {batch, readers * value_size})}};
  };
  Tensor past = l.has(kPast) ? e.cast(l.inputs[kPast], dtype_of(l.inputs[kQuery]))
                             : e.filled(0, dtype_of(l.inputs[kQuery]), {batch, heads, size, value_size});
  HEDDLE_TRY_ASSIGN(const Iteration iteration, repeat(l.work, e, steps, {past}, body));
  l.outputs[0] = e.transpose(iteration.stacked[0], {1, 0, 2});
  l.outputs[1] = e.cast(iteration.carried[0], l.out_dtype(1));
  return {};
}

}  // namespace

std::span<const PathEntry> recurrent_paths() {
  using enum Path;
  constexpr std::string_view kCells =
      "step by step: MPSGraph's cells have neither lengths, clipping, nor activations of each direction";
  static constexpr PathEntry kEntries[] = {
      {"RNN", composed, lower_recurrent, kWide, kCells},
      {"GRU", composed, lower_recurrent, kWide, kCells},
      {"LSTM", composed, lower_recurrent, kWide, kCells},
      {"LinearAttention", composed, lower_linear_attention, kWide, "MPSGraph has no such operator"},
  };
  return kEntries;
}

}  // namespace heddle::metal
