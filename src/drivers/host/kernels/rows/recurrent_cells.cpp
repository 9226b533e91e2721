#include "drivers/host/kernels/rows/recurrent_cells.h"

#include "drivers/host/kernels/elementwise/vector_math.h"

namespace heddle::host {

namespace {

struct Usual {
  float clip;
  HEDDLE_INLINE float held(float x) const { return x > clip ? clip : x < -clip ? -clip : x; }
  template <size_t i>
  HEDDLE_INLINE float apply(float x) const {
    return i == 0 ? vsigmoid(held(x)) : vtanh(held(x));
  }
};

struct Any {
  const ir::CellActivation* functions;
  float clip;
  HEDDLE_INLINE float held(float x) const { return x > clip ? clip : x < -clip ? -clip : x; }
  template <size_t i>
  float apply(float x) const {
    return static_cast<float>(functions[i](static_cast<double>(held(x))));
  }
};

template <class F>
HEDDLE_INLINE void lstm(const CellRow& row, const F& f, const float* peepholes, bool input_forget, float* c) {
  const int64_t n = row.hidden, xs = row.input_gate, ss = row.state_gate;
  const float *x = row.input, *s = row.state;
  float* h = row.new_h;
  // Without peepholes any numbers do, times zero would not: c may be infinite.
  const bool looks = peepholes != nullptr;
  const float* p = looks ? peepholes : x;
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) {
    const float old = c[j];
    const float in_sum = x[j] + s[j], out_sum = x[xs + j] + s[ss + j],
                forget_sum = x[2 * xs + j] + s[2 * ss + j];
    const float in = f.template apply<0>(looks ? in_sum + p[j] * old : in_sum);
    const float kept = f.template apply<0>(looks ? forget_sum + p[2 * xs + j] * old : forget_sum);
    const float fresh = f.template apply<1>(x[3 * xs + j] + s[3 * ss + j]);
    const float cell = (input_forget ? 1.0f - in : kept) * old + in * fresh;
    const float out = f.template apply<0>(looks ? out_sum + p[xs + j] * cell : out_sum);
    c[j] = cell;
    h[j] = out * f.template apply<2>(cell);
  }
}

template <class F>
HEDDLE_INLINE void gru(const CellRow& row, const F& f, const float* bias) {
  const int64_t n = row.hidden, xs = row.input_gate, ss = row.state_gate;
  const float *x = row.input, *s = row.state, *old = row.h;
  float* h = row.new_h;
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) {
    const float z = f.template apply<0>(x[j] + s[j]);
    const float r = f.template apply<0>(x[xs + j] + s[ss + j]);
    const float sum = s[2 * ss + j] + (bias != nullptr ? bias[j] : 0.0f);
    const float fresh = f.template apply<1>(x[2 * xs + j] + r * sum);
    h[j] = (1.0f - z) * fresh + z * old[j];
  }
}

template <class F>
HEDDLE_INLINE void gates(const CellRow& row, const F& f, float* z, float* left) {
  const int64_t n = row.hidden, xs = row.input_gate, ss = row.state_gate;
  const float *x = row.input, *s = row.state, *old = row.h;
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) {
    z[j] = f.template apply<0>(x[j] + s[j]);
    left[j] = f.template apply<0>(x[xs + j] + s[ss + j]) * old[j];
  }
}

template <class F>
HEDDLE_INLINE void join(const CellRow& row, const F& f, const float* z, const float* fresh) {
  const int64_t n = row.hidden, xs = row.input_gate;
  const float *x = row.input, *old = row.h;
  float* h = row.new_h;
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) {
    h[j] = (1.0f - z[j]) * f.template apply<1>(x[2 * xs + j] + fresh[j]) + z[j] * old[j];
  }
}

HEDDLE_VECTORISED void lstm_usual(const CellRow& row, float clip, const float* peepholes, bool input_forget,
                                  float* c) {
  lstm(row, Usual{clip}, peepholes, input_forget, c);
}
HEDDLE_VECTORISED void gru_usual(const CellRow& row, float clip, const float* bias) {
  gru(row, Usual{clip}, bias);
}
HEDDLE_VECTORISED void gates_usual(const CellRow& row, float clip, float* z, float* left) {
  gates(row, Usual{clip}, z, left);
}
HEDDLE_VECTORISED void join_usual(const CellRow& row, float clip, const float* z, const float* fresh) {
  join(row, Usual{clip}, z, fresh);
}
HEDDLE_VECTORISED void rnn_usual(const CellRow& row, float clip) {
  const Usual f{clip};
#pragma omp simd
  for (int64_t j = 0; j < row.hidden; ++j) row.new_h[j] = vtanh(f.held(row.input[j] + row.state[j]));
}

}  // namespace

void rnn_cell(const CellRow& row, const CellFunctions& f) {
  if (f.usual) return rnn_usual(row, f.clip);
  const Any any{f.functions, f.clip};
  for (int64_t j = 0; j < row.hidden; ++j) row.new_h[j] = any.apply<0>(row.input[j] + row.state[j]);
}

void lstm_cell(const CellRow& row, const CellFunctions& f, const float* peepholes, bool input_forget,
               float* c) {
  if (f.usual) return lstm_usual(row, f.clip, peepholes, input_forget, c);
  lstm(row, Any{f.functions, f.clip}, peepholes, input_forget, c);
}

void gru_cell(const CellRow& row, const CellFunctions& f, const float* bias) {
  f.usual ? gru_usual(row, f.clip, bias) : gru(row, Any{f.functions, f.clip}, bias);
}

void gru_gates(const CellRow& row, const CellFunctions& f, float* z, float* left) {
  f.usual ? gates_usual(row, f.clip, z, left) : gates(row, Any{f.functions, f.clip}, z, left);
}

void gru_join(const CellRow& row, const CellFunctions& f, const float* z, const float* fresh) {
  f.usual ? join_usual(row, f.clip, z, fresh) : join(row, Any{f.functions, f.clip}, z, fresh);
}

}  // namespace heddle::host
