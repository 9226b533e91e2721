// recurrent.h: what the attributes of RNN, GRU and LSTM say, read and checked once.
//
//   What       The kind of cell, its directions, and for each direction the activation functions with their
//              parameters.
//   Threads    Plain values and pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"

namespace heddle::ir {

enum class CellFunction : uint8_t {
  kSigmoid,
  kTanh,
  kRelu,
  kAffine,
  kLeakyRelu,
  kThresholdedRelu,
  kScaledTanh,
  kHardSigmoid,
  kElu,
  kSoftsign,
  kSoftplus
};

struct CellActivation {
  CellFunction function = CellFunction::kSigmoid;
  double alpha = 0;
  double beta = 0;
  double operator()(double x) const;
  friend bool operator==(const CellActivation&, const CellActivation&) = default;
};

enum class Cell : uint8_t { kRnn, kGru, kLstm };

struct Recurrent {
  Cell cell = Cell::kRnn;
  int64_t directions = 1;
  bool first_backward = false;  // the first direction runs from the end
  int64_t gates = 1;            // of the weights: RNN 1, GRU 3 (z, r, h), LSTM 4 (i, o, f, c)
  // RNN: f; GRU: f, g; LSTM: f, g, h; those of the second direction follow.
  std::vector<CellActivation> activations;
  double clip = std::numeric_limits<double>::infinity();  // of what goes into an activation
  bool linear_before_reset = false;
  bool input_forget = false;  // the forget gate is 1 - the input gate

  static Result<Recurrent> of(const Node& node);
  size_t functions() const { return activations.size() / static_cast<size_t>(directions); }
  const CellActivation& activation(int64_t direction, size_t i) const {
    return activations[static_cast<size_t>(direction) * functions() + i];
  }
  bool backward(int64_t direction) const { return direction == 1 || first_backward; }
};

}  // namespace heddle::ir
