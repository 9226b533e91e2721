// recurrent.h: RNN, GRU and LSTM: what the inputs add to the gates of all steps, and one step.
#pragma once

#include "drivers/cuda/kernels/block.h"
#include "drivers/cuda/kernels/flags.h"
#include "drivers/cuda/kernels/scalar.h"
#include "drivers/cuda/kernels/tile.h"

namespace heddle::cuda {

// out[row, n] = sum_k x[row, k] w[n, k] + bias of n. A direction has twice `gates` biases: those of the
// inputs come first.
struct GateSumsParams {
  uint64_t x = 0, w = 0, bias = 0, out = 0;              // bias 0: none
  int64_t rows = 0, columns = 0, inputs = 0, gates = 1;  // gates: columns of a direction
};

// A block makes a tile of kSide rows and columns; a thread makes 4 x 4 elements that lie kAcross apart.
template <Type kType>
struct GateSums {
  using C = Computed<kType>;
  static constexpr int kSide = 64, kDepth = 16, kStride = kSide + 1, kOwn = 4, kAcross = kSide / kOwn;
  static constexpr int kThreads = kAcross * kAcross;
  static constexpr int kSharedBytes = 2 * kDepth * kStride * sizeof(C) + 16;
  GateSumsParams p;

  struct Sums {
    C at[kOwn][kOwn];
  };

  // Turned, so that neighbours along the side lie together.
  HEDDLE_DEVICE void load_tile(int thread, C* to, uint64_t from, int64_t first, int64_t count,
                               int64_t k) const {
    for (int i = thread; i < kSide * kDepth; i += kThreads) {
      const int64_t row = first + i / kDepth, at = k + i % kDepth;
      const bool inside = row < count && at < p.inputs;
      to[i % kDepth * kStride + i / kDepth] = inside ? load<C>(from, kType, row * p.inputs + at) : C(0);
    }
  }

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    C* const x = block.template shared<C>(kDepth * kStride);
    C* const w = block.template shared<C>(kDepth * kStride);
    typename Block::template Own<Sums> sums(block);
    const int64_t across = (p.columns + kSide - 1) / kSide, down = (p.rows + kSide - 1) / kSide;
    for (int64_t tile = block.index(); tile < across * down; tile += block.blocks()) {
      const int64_t row = tile / across * kSide, column = tile % across * kSide;
      block.each([&](int thread) { sums[thread] = {}; });
      for (int64_t k = 0; k < p.inputs; k += kDepth) {
        block.each([&](int thread) {
          load_tile(thread, x, p.x, row, p.rows, k);
          load_tile(thread, w, p.w, column, p.columns, k);
        });
        block.each([&](int thread) {
          for (int d = 0; d < kDepth; ++d) {
            C a[kOwn], b[kOwn];
            HEDDLE_UNROLL
            for (int i = 0; i < kOwn; ++i) {
              a[i] = x[d * kStride + thread / kAcross + i * kAcross];
              b[i] = w[d * kStride + thread % kAcross + i * kAcross];
            }
            HEDDLE_UNROLL
            for (int i = 0; i < kOwn; ++i) {
              HEDDLE_UNROLL
              for (int j = 0; j < kOwn; ++j)
                sums[thread].at[i][j] = std::fma(a[i], b[j], sums[thread].at[i][j]);
            }
          }
        });
      }
      block.each([&](int thread) {
        HEDDLE_UNROLL
        for (int i = 0; i < kOwn; ++i) {
          HEDDLE_UNROLL
          for (int j = 0; j < kOwn; ++j) {
            const int64_t r = row + thread / kAcross + i * kAcross,
                          n = column + thread % kAcross + j * kAcross;
            if (r >= p.rows || n >= p.columns) continue;
            const C bias = p.bias == 0 ? C(0) : load<C>(p.bias, kType, n / p.gates * p.gates + n);
            global<C>(p.out)[r * p.columns + n] = sums[thread].at[i][j] + bias;
          }
        }
      });
    }
  }
};

enum class Cell : int32_t {  // as ir::CellFunction, which recurrent.cpp compares
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
struct CellFunction {
  Cell kind = Cell::kSigmoid;
  Numbers numbers;
};

template <class C>
HEDDLE_DEVICE C applied(const CellFunction& f, C x) {
  const C alpha = C(f.numbers.a), beta = C(f.numbers.b);
  switch (f.kind) {
    case Cell::kSigmoid:
      return Sigmoid::apply<C>(&x, f.numbers);
    case Cell::kTanh:
      return Tanh::apply<C>(&x, f.numbers);
    case Cell::kRelu:
      return Relu::apply<C>(&x, f.numbers);
    case Cell::kAffine:
      return alpha * x + beta;
    case Cell::kLeakyRelu:
      return LeakyRelu::apply<C>(&x, f.numbers);
    case Cell::kThresholdedRelu:
      return x < alpha ? C(0) : x;
    case Cell::kScaledTanh:
      return alpha * std::tanh(beta * x);
    case Cell::kHardSigmoid:
      return HardSigmoid::apply<C>(&x, f.numbers);
    case Cell::kElu:
      return Elu::apply<C>(&x, f.numbers);
    case Cell::kSoftsign:
      return Softsign::apply<C>(&x, f.numbers);
    case Cell::kSoftplus:
      return Softplus::apply<C>(&x, f.numbers);
  }
  return x;
}

// What a launch makes of a step. A GRU that resets the state before its product takes two.
enum class StepKind : int32_t { kRnn, kGru, kGruGates, kGruState, kLstm };

struct CellStepParams {
  uint64_t sums = 0, r = 0, bias = 0, peepholes = 0, lengths = 0;  // bias, peepholes, lengths 0: none
  uint64_t from = 0;               // what is multiplied by r: the state, or kGruState: the state that is left
  uint64_t before = 0, after = 0;  // states
  uint64_t cell = 0;               // kLstm: its cells; kGruGates, kGruState: gate z
  uint64_t left = 0;               // kGruGates: the state times gate r
  uint64_t out = 0;                // 0: not wanted
  Type length_type = Type::kI32;
  StepKind kind = StepKind::kRnn;
  int32_t first_backward = 0, input_forget = 0;
  int32_t gates = 1, first_gate = 0;  // of the weights, and the first one that the launch multiplies
  int64_t step = 0, steps = 0, batch = 0, hidden = 0, directions = 1;
  double clip = 0;
  CellFunction functions[2][3];
  Flags flags;
};

// A block makes kUnits hidden units of kExamples examples: a warp multiplies a unit's kProducts rows of r by
// the examples' states, the warp's sums are summed up in order, and a thread makes a unit of an example.
template <Type kType, int kProducts>
struct CellStep {
  using C = Computed<kType>;
  static constexpr int kUnits = 8, kWarp = 32, kExamples = 4, kThreads = kUnits * kWarp;
  static constexpr int kValues = kProducts * kExamples, kStride = kWarp + 1;
  static constexpr int kSharedBytes = (kUnits * kValues * kStride * sizeof(C) + 15) / 16 * 16;
  CellStepParams p;

  struct Unit {
    int64_t d, b, j;
  };

  HEDDLE_DEVICE void multiply(int thread, const Unit& first, C* partial) const {
    const int unit = thread / kWarp, lane = thread % kWarp;
    const int64_t j = first.j + unit;
    if (j >= p.hidden) return;
    const int64_t row = ((first.d * p.gates + p.first_gate) * p.hidden + j) * p.hidden;
    C sums[kProducts][kExamples] = {};
    for (int64_t k = lane; k < p.hidden; k += kWarp) {
      C state[kExamples];
      HEDDLE_UNROLL
      for (int e = 0; e < kExamples; ++e) {
        const int64_t b = first.b + e < p.batch ? first.b + e : p.batch - 1;
        state[e] = global<const C>(p.from)[(first.d * p.batch + b) * p.hidden + k];
      }
      HEDDLE_UNROLL
      for (int g = 0; g < kProducts; ++g) {
        const C weight = load<C>(p.r, kType, row + g * p.hidden * p.hidden + k);
        HEDDLE_UNROLL
        for (int e = 0; e < kExamples; ++e) sums[g][e] = std::fma(weight, state[e], sums[g][e]);
      }
    }
    HEDDLE_UNROLL
    for (int g = 0; g < kProducts; ++g) {
      HEDDLE_UNROLL
      for (int e = 0; e < kExamples; ++e)
        partial[(unit * kValues + g * kExamples + e) * kStride + lane] = sums[g][e];
    }
  }

  // The products of a unit, with their biases; with what the inputs add, too.
  struct Gates {
    C of_state[kProducts], of_inputs[kProducts];
    HEDDLE_DEVICE C both(int g) const { return of_state[g] + of_inputs[g]; }
  };

  HEDDLE_DEVICE C activated(const Unit& u, int function, C x) const {
    const C clip = C(p.clip), low = x < -clip ? -clip : x;
    return applied<C>(p.functions[u.d][function], low > clip ? clip : low);
  }
  HEDDLE_DEVICE C peephole(const Unit& u, int gate) const {
    return p.peepholes == 0 ? C(0) : load<C>(p.peepholes, kType, (u.d * 3 + gate) * p.hidden + u.j);
  }

  // The state that the unit has after the step.
  HEDDLE_DEVICE C made(const Unit& u, const Gates& gates, int64_t at) const {
    const C before = global<const C>(p.before)[at];
    if constexpr (kProducts == 1) {
      const C fresh = activated(u, p.kind == StepKind::kRnn ? 0 : 1, gates.both(0));
      if (p.kind == StepKind::kRnn) return fresh;
      const C z = global<const C>(p.cell)[at];
      return (C(1) - z) * fresh + z * before;
    } else if constexpr (kProducts == 3) {
      const C z = activated(u, 0, gates.both(0)), reset = activated(u, 0, gates.both(1));
      const C fresh = activated(u, 1, gates.of_inputs[2] + reset * gates.of_state[2]);
      return (C(1) - z) * fresh + z * before;
    } else {
      C cell = global<const C>(p.cell)[at];
      const C in = activated(u, 0, gates.both(0) + peephole(u, 0) * cell);
      const C kept = p.input_forget != 0 ? C(1) - in : activated(u, 0, gates.both(2) + peephole(u, 2) * cell);
      cell = kept * cell + in * activated(u, 1, gates.both(3));
      global<C>(p.cell)[at] = cell;
      return activated(u, 0, gates.both(1) + peephole(u, 1) * cell) * activated(u, 2, cell);
    }
  }

  HEDDLE_DEVICE void finish(const Unit& u, const C* totals) const {
    int64_t length = p.lengths == 0 ? p.steps : load<int64_t>(p.lengths, p.length_type, u.b);
    if (length < 0 || length > p.steps) {
      mark_wrong(p.flags, u.b);
      length = 0;
    }
    const bool backward = u.d == 1 || p.first_backward != 0, runs = p.step < length;
    const int64_t t = runs && backward ? length - 1 - p.step : p.step;
    const int64_t state = u.d * p.batch + u.b, at = state * p.hidden + u.j;
    Gates gates;
    HEDDLE_UNROLL
    for (int g = 0; g < kProducts; ++g) {
      const int64_t gate = (p.first_gate + g) * p.hidden + u.j, all = p.gates * p.hidden;
      gates.of_state[g] = totals[g * kExamples * kStride];
      if (p.bias != 0) gates.of_state[g] += load<C>(p.bias, kType, (u.d * 2 + 1) * all + gate);
      gates.of_inputs[g] = global<const C>(p.sums)[((t * p.batch + u.b) * p.directions + u.d) * all + gate];
    }
    if constexpr (kProducts == 2) {
      global<C>(p.cell)[at] = activated(u, 0, gates.both(0));
      global<C>(p.left)[at] = activated(u, 0, gates.both(1)) * global<const C>(p.before)[at];
    } else {
      const C h = runs ? made(u, gates, at) : global<const C>(p.before)[at];
      global<C>(p.after)[at] = h;
      const int64_t out = ((t * p.directions + u.d) * p.batch + u.b) * p.hidden + u.j;
      if (p.out != 0) store<C>(p.out, kType, out, runs ? h : C(0));
    }
  }

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    C* const partial = block.template shared<C>(kUnits * kValues * kStride);
    const int64_t units = (p.hidden + kUnits - 1) / kUnits, examples = (p.batch + kExamples - 1) / kExamples;
    for (int64_t item = block.index(); item < p.directions * examples * units; item += block.blocks()) {
      const Unit first{item / units / examples, item / units % examples * kExamples, item % units * kUnits};
      block.each([&](int thread) { multiply(thread, first, partial); });
      block.each([&](int thread) {
        for (int value = thread; value < kUnits * kValues; value += kThreads) {
          C sum = 0;
          for (int lane = 0; lane < kWarp; ++lane) sum += partial[value * kStride + lane];
          partial[value * kStride + kWarp] = sum;
        }
      });
      block.each([&](int thread) {
        const int unit = thread % kUnits, example = thread / kUnits;
        const Unit u{first.d, first.b + example, first.j + unit};
        if (example >= kExamples || u.b >= p.batch || u.j >= p.hidden) return;
        finish(u, partial + (unit * kValues + example) * kStride + kWarp);
      });
    }
  }
};

}  // namespace heddle::cuda
