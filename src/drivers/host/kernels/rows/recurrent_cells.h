// recurrent_cells.h: what RNN, GRU and LSTM do with the sums of one row at one time step.
//
//   What       `input` holds x * w' + biases, `state` h * r', gate by gate (in ONNX's order), for all of the
//              hidden elements or for some that lie side by side. A cell makes the new state of the row,
//              which may be where the old one is.
//   Invariant  The usual functions (sigmoid, tanh) are vectorised; others go element by element. Results do
//              not depend on the other rows.
//   Threads    Pure functions over the caller's memory.
#pragma once

#include <cstdint>

#include "ir/recurrent.h"

namespace heddle::host {

struct CellRow {
  const float* input;
  const float* state;
  const float* h;  // the old state
  float* new_h;
  int64_t hidden;                  // elements
  int64_t input_gate, state_gate;  // from one gate to the next; peepholes lie as the input does
};

// Of one direction: its functions in order (ir::Recurrent), and the clip of what goes into them.
struct CellFunctions {
  const ir::CellActivation* functions;
  bool usual;  // sigmoid for gates, tanh for the rest
  float clip;
};

void rnn_cell(const CellRow& row, const CellFunctions& functions);

// c is read and written. `peepholes` is null or three gates: of the input, output and forget gates.
void lstm_cell(const CellRow& row, const CellFunctions& functions, const float* peepholes, bool input_forget,
               float* c);

// The reset gate acts on the sums of the state: row.state has three gates, `bias` (null: zeros) is added to
// the third before.
void gru_cell(const CellRow& row, const CellFunctions& functions, const float* bias);
// The reset gate acts on the state: first z and r * h from two gates of sums, then, from
// `fresh` = (r * h) * r', the new state.
void gru_gates(const CellRow& row, const CellFunctions& functions, float* z, float* left);
void gru_join(const CellRow& row, const CellFunctions& functions, const float* z, const float* fresh);

}  // namespace heddle::host
