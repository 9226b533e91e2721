// recurrent.cpp: RNN, GRU and LSTM over sequences, in layers, and the fused cells of one step.
#include <algorithm>
#include <string>

#include "../table.h"
#include "parts.h"

namespace heddle::torch_backend {
namespace {

struct Cell {
  std::string_view op;
  std::vector<size_t> gates;    // of the graph's operator, by their places among PyTorch's
  std::string_view activation;  // of RNN
  size_t states;
};

const Cell kLstm = {"LSTM", {0, 3, 1, 2}, "", 2};  // i f g o; the graph's: i o f g
const Cell kGru = {"GRU", {1, 0, 2}, "", 1};       // r z n; the graph's: z r n
const Cell kTanh = {"RNN", {0}, "Tanh", 1};
const Cell kRelu = {"RNN", {0}, "Relu", 1};

// Positions of the arguments: (input, states, params, has_biases, num_layers, dropout, train, bidirectional,
// batch_first)
enum Argument : int { kInput, kStates, kParams, kBiases, kLayers, kDropout, kTrain, kBoth, kBatchFirst };

Value concatenated(Call& call, const std::vector<Value>& values, int64_t axis) {
  return values.size() == 1 ? values[0] : call.node("Concat", values, {{"axis", axis}});
}

class Layers {
 public:
  Layers(Call& call, const Cell& cell, std::vector<Value> states)
      : call_(call),
        cell_(cell),
        states_(std::move(states)),
        params_(call.tensors(kParams)),
        biases_(call.flag(kBiases)),
        directions_(call.flag(kBoth) ? 2 : 1),
        layers_(static_cast<size_t>(call.integer(kLayers))),
        dtype_(wide(call.dtype(call.tensor(kInput)))) {
    if (params_.size() != layers_ * directions_ * per_direction())
      call.unsupported("projections of the state (proj_size)");
    if (call.flag(kTrain) && call.real(kDropout) != 0)
      call.unsupported("dropout in training; call eval() on the module");
  }

  Results build() {
    const bool batch_first = call_.flag(kBatchFirst);
    Value x = widened(call_, kInput);
    if (batch_first) x = call_.swap_axes(x, 0, 1);
    std::vector<std::vector<Value>> last(cell_.states);
    for (size_t layer = 0; layer < layers_; ++layer) {
      const std::vector<Value> out = run(x, layer);
      // [steps, directions, batch, hidden] as [steps, batch, directions * hidden]
      const Value by_row = call_.transpose(out[0], {0, 2, 1, 3});
      x = regroup(call_, by_row, {0, 0, static_cast<int64_t>(directions_) * call_.extent(out[0], 3)});
      for (size_t i = 0; i < cell_.states; ++i) last[i].push_back(call_.squeeze(out[1 + i], {0}));
    }
    std::vector<Value> results = {batch_first ? call_.swap_axes(x, 0, 1) : x};
    for (const std::vector<Value>& states : last) results.push_back(concatenated(call_, states, 0));
    return Results(std::move(results));
  }

 private:
  size_t per_direction() const { return biases_ ? 4 : 2; }

  Value parameter(size_t layer, size_t direction, size_t which) const {
    return call_.cast(params_[(layer * directions_ + direction) * per_direction() + which], dtype_);
  }

  // Rows of the gates in the graph's order.
  Value gates(Value rows) const {
    if (cell_.gates.size() == 1) return rows;
    const std::vector<Value> apart = call_.nodes("Split", {rows}, cell_.gates.size(), {{"axis", int64_t{0}}});
    std::vector<Value> ordered;
    for (const size_t gate : cell_.gates) ordered.push_back(apart[gate]);
    return concatenated(call_, ordered, 0);
  }

  // A parameter of all directions, [directions, ..].
  template <class One>
  Value stacked(One one) const {
    std::vector<Value> all;
    for (size_t direction = 0; direction < directions_; ++direction)
      all.push_back(call_.unsqueeze(one(direction), {0}));
    return concatenated(call_, all, 0);
  }

  std::vector<Value> run(Value x, size_t layer) const {
    std::vector<Value> inputs = {x, stacked([&](size_t d) { return gates(parameter(layer, d, 0)); }),
                                 stacked([&](size_t d) { return gates(parameter(layer, d, 1)); }), kAbsent,
                                 kAbsent};
    if (biases_) {
      inputs[3] = stacked([&](size_t d) {
        return concatenated(call_, {gates(parameter(layer, d, 2)), gates(parameter(layer, d, 3))}, 0);
      });
    }
    const auto first = static_cast<int64_t>(layer * directions_),
               end = first + static_cast<int64_t>(directions_);
    for (const Value state : states_) inputs.push_back(call_.slice(call_.cast(state, dtype_), 0, first, end));
    AttributeList attributes = {{"direction", std::string(directions_ == 2 ? "bidirectional" : "forward")},
                                {"hidden_size", call_.extent(inputs[2], 2)}};
    if (cell_.op == "GRU") attributes.emplace_back("linear_before_reset", int64_t{1});
    if (!cell_.activation.empty()) {
      std::string names(cell_.activation);
      if (directions_ == 2) names.append(",").append(cell_.activation);
      attributes.emplace_back("activations", names);
    }
    return call_.nodes(cell_.op, inputs, 1 + cell_.states, attributes);
  }

  Call& call_;
  const Cell& cell_;
  std::vector<Value> states_, params_;
  bool biases_;
  size_t directions_, layers_;
  DType dtype_;
};

template <const Cell& cell>
Results layers(Call& call) {
  std::vector<Value> states = cell.states == 2 ? call.tensors(kStates) : std::vector{call.tensor(kStates)};
  return Layers(call, cell, std::move(states)).build();
}

// ---- one step, its products done

Value with_bias(Call& call, int gates, int bias) {
  const Value sum = widened(call, gates), addend = widened(call, bias);
  return present(addend) ? call.node("Add", {sum, addend}) : sum;
}

std::vector<Value> parts(Call& call, Value gates, size_t count) {
  return call.nodes("Split", {gates}, count, {{"axis", int64_t{1}}});
}

// (input_gates, hidden_gates, cx, input_bias, hidden_bias): h, c, and the gates for a backward pass.
Results lstm_cell(Call& call) {
  const auto mul = [&](Value a, Value b) { return call.node("Mul", {a, b}); };
  const std::vector<Value> sums =
      parts(call, call.node("Add", {with_bias(call, 0, 3), with_bias(call, 1, 4)}), 4);
  const Value in = call.node("Sigmoid", {sums[0]}), forget = call.node("Sigmoid", {sums[1]});
  const Value fresh = call.node("Tanh", {sums[2]}), out = call.node("Sigmoid", {sums[3]});
  const Value c = call.node("Add", {mul(forget, widened(call, 2)), mul(in, fresh)});
  const Value h = mul(out, call.node("Tanh", {c}));
  return {h, c, concatenated(call, {in, forget, fresh, out}, 1)};
}

// (input_gates, hidden_gates, hx, input_bias, hidden_bias): h, and five gates for a backward pass.
Results gru_cell(Call& call) {
  const std::vector<Value> given = parts(call, with_bias(call, 0, 3), 3),
                           own = parts(call, with_bias(call, 1, 4), 3);
  const Value hx = widened(call, 2);
  const auto add = [&](Value a, Value b) { return call.node("Add", {a, b}); };
  const Value reset = call.node("Sigmoid", {add(given[0], own[0])});
  const Value keep = call.node("Sigmoid", {add(given[1], own[1])});
  const Value fresh = call.node("Tanh", {add(given[2], call.node("Mul", {reset, own[2]}))});
  const Value h = add(fresh, call.node("Mul", {keep, call.node("Sub", {hx, fresh})}));
  // No Meta kernel tells the dtypes.
  const DType dtype = call.dtype(call.tensor(2));
  return {call.cast(h, dtype), call.cast(concatenated(call, {reset, keep, fresh, hx, own[2]}, 1), dtype)};
}

}  // namespace

std::span<const Entry> recurrent_entries() {
  static constexpr Entry kEntries[] = {
      {"aten::lstm.input", layers<kLstm>},        {"aten::gru.input", layers<kGru>},
      {"aten::rnn_tanh.input", layers<kTanh>},    {"aten::rnn_relu.input", layers<kRelu>},
      {"aten::_thnn_fused_lstm_cell", lstm_cell}, {"aten::_thnn_fused_gru_cell", gru_cell},
  };
  return kEntries;
}

}  // namespace heddle::torch_backend
