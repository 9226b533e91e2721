// linear_attention.h: a state per example and head that each position decays, corrects, writes and reads. Its
// columns know nothing of each other: a thread takes one through all positions.
#pragma once

#include "drivers/cuda/kernels/block.h"
#include "drivers/cuda/kernels/element.h"

namespace heddle::cuda {

struct LinearAttentionParams {
  uint64_t q = 0, k = 0, v = 0, out = 0;
  uint64_t kept = 0;   // of C: what the decay leaves; 0: all
  uint64_t rates = 0;  // 0: nothing is corrected
  uint64_t state = 0;  // of C
  Type type = Type::kF32;
  int32_t kept_each = 1, rates_each = 1;  // one for each element of a key, one for each head; else 0
  int64_t batch = 0, positions = 0, heads = 1, readers = 1;  // readers: heads of queries for one head
  int64_t extent = 0, value_extent = 0;
  double scale = 1;
};

template <class C>
struct LinearAttention {
  LinearAttentionParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.batch * p.heads * p.value_extent, [&](int64_t column) {
      const int64_t e = column % p.value_extent, of_head = column / p.value_extent;
      const int64_t head = of_head % p.heads, example = of_head / p.heads;
      C* const state = global<C>(p.state) + of_head * p.extent * p.value_extent + e;
      for (int64_t t = 0; t < p.positions; ++t) {
        const int64_t row = example * p.positions + t, at = row * p.heads + head;
        C seen = 0;
        for (int64_t d = 0; d < p.extent; ++d) {
          C& each = state[d * p.value_extent];
          if (p.kept != 0) each *= global<const C>(p.kept)[p.kept_each != 0 ? at * p.extent + d : at];
          seen += each * load<C>(p.k, p.type, at * p.extent + d);
        }
        C value = load<C>(p.v, p.type, at * p.value_extent + e);
        if (p.rates != 0) value = (value - seen) * load<C>(p.rates, p.type, p.rates_each != 0 ? at : row);
        for (int64_t d = 0; d < p.extent; ++d)
          state[d * p.value_extent] += load<C>(p.k, p.type, at * p.extent + d) * value;
        for (int64_t reader = at * p.readers; reader < (at + 1) * p.readers; ++reader) {
          C sum = 0;
          for (int64_t d = 0; d < p.extent; ++d)
            sum += load<C>(p.q, p.type, reader * p.extent + d) * state[d * p.value_extent];
          store<C>(p.out, p.type, reader * p.value_extent + e, C(p.scale) * sum);
        }
      }
    });
  }
};

}  // namespace heddle::cuda
