// held_rows.h: softmax and normalisations of contiguous rows that a team of threads holds in registers.
//
//   What       Each element is read once and written once. Short rows have a warp each, several in a block.
//   Order      That of a row's sums depends on its length alone: its bits are the same whatever rows are
//              beside it.
#pragma once

#include "drivers/cuda/kernels/block.h"
#include "drivers/cuda/kernels/quad.h"
#include "drivers/cuda/kernels/rows.h"

namespace heddle::cuda {

inline constexpr int kMostLanes = 512;                            // of a team
inline constexpr int kHeldQuads = 4, kHeld = kQuad * kHeldQuads;  // elements of a row in one thread

struct Held {
  float x[kHeld];
};
struct RawHeld {
  RawQuad quad[kHeldQuads];
};

// The place of one thread in its row.
struct Lane {
  int64_t row = 0, extent = 0;
  int lane = 0, lanes = kWarp;

  // f(element, quad) for every quad of the row that is this thread's.
  template <class F>
  HEDDLE_DEVICE void each_quad(F f) const {
    HEDDLE_UNROLL
    for (int j = 0; j < kHeldQuads; ++j) {
      const int64_t element = (int64_t{j} * lanes + lane) * kQuad;
      if (element < extent) f(element, j * kQuad);
    }
  }
  // Of `extent` elements from element `first` on.
  HEDDLE_DEVICE void read(uint64_t data, Type type, int64_t first, RawHeld& raw) const {
    each_quad([&](int64_t element, int at) {
      raw.quad[at / kQuad] = raw_quad(data, type, first + element, first + extent);
    });
  }
  HEDDLE_DEVICE void take(const RawHeld& raw, Type type, Held& held) const {
    each_quad([&](int64_t, int at) { numbers_of(raw.quad[at / kQuad], type, held.x + at); });
  }
  HEDDLE_DEVICE void read(uint64_t data, Type type, Held& held) const {
    RawHeld raw;
    read(data, type, row * extent, raw);
    take(raw, type, held);
  }
  HEDDLE_DEVICE void write(uint64_t data, Type type, const Held& held) const {
    each_quad([&](int64_t element, int at) {
      write_quad<NarrowFloats>(data, type, row * extent + element, (row + 1) * extent, held.x + at);
    });
  }
  template <class F>
  HEDDLE_DEVICE void change(Held& held, F f) const {
    each_quad([&](int64_t, int at) {
      for (int e = 0; e < kQuad; ++e) held.x[at + e] = f(held.x[at + e]);
    });
  }
  // Joins f(x) of the elements, `first` where there are none.
  template <class F, class Join>
  HEDDLE_DEVICE float all_of(const Held& held, float first, F f, Join join) const {
    float all = first;
    each_quad([&](int64_t element, int at) {
      for (int e = 0; e < kQuad; ++e) {
        if (element + e < extent) all = join(all, f(held.x[at + e]));
      }
    });
    return all;
  }
};

// f(thread, its lane) for every thread whose team has a row, `first` being that of the block's first team.
template <class Block, class F>
HEDDLE_DEVICE void each_lane(Block& block, int lanes, int64_t first, int64_t rows, int64_t extent, F f) {
  block.each_alone([&](int thread) {
    const Lane lane{first + thread / lanes, extent, thread % lanes, lanes};
    if (lane.row < rows) f(thread, lane);
  });
}

HEDDLE_DEVICE float sum_of(float a, float b) { return a + b; }
HEDDLE_DEVICE float greatest_of(float a, float b) { return a > b ? a : b; }

struct HeldSoftmax {
  static constexpr int kThreads = kMostLanes;
  SoftmaxParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    float* const words = block.template shared<float>(block.threads() / kWarp);
    const int lanes = p.lanes, teams = block.threads() / lanes;
    for (int64_t first = block.index() * teams; first < p.rows; first += block.blocks() * teams) {
      typename Block::template Own<Held> held(block);
      typename Block::template Own<float> all(block);
      const auto each = [&](auto f) { each_lane(block, lanes, first, p.rows, p.extent, f); };
      each([&](int thread, const Lane& lane) {
        lane.read(p.in, p.type, held[thread]);
        all[thread] = lane.all_of(held[thread], -INFINITY, [](float x) { return x; }, greatest_of);
      });
      combine_teams(block, all, words, lanes, greatest_of);
      each([&](int thread, const Lane& lane) {
        Held& mine = held[thread];
        const float greatest = all[thread];
        lane.change(mine, [&](float x) { return p.logarithm == 0 ? std::exp(x - greatest) : x - greatest; });
        const auto term = [&](float x) { return p.logarithm == 0 ? x : std::exp(x); };
        all[thread] = lane.all_of(mine, 0, term, sum_of);
      });
      combine_teams(block, all, words, lanes, sum_of);
      each([&](int thread, const Lane& lane) {
        Held& mine = held[thread];
        const float sum = p.logarithm == 0 ? all[thread] : std::log(all[thread]);
        lane.change(mine, [&](float x) { return p.logarithm == 0 ? x / sum : x - sum; });
        lane.write(p.out, p.type, mine);
      });
    }
  }
};

struct HeldNorm {
  static constexpr int kThreads = kMostLanes;
  NormParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    float* const words = block.template shared<float>(block.threads() / kWarp);
    const int lanes = p.lanes, teams = block.threads() / lanes;
    const float size = float(p.size);
    for (int64_t first = block.index() * teams; first < p.rows; first += block.blocks() * teams) {
      typename Block::template Own<Held> held(block);
      typename Block::template Own<RawHeld> scale(block), bias(block);
      typename Block::template Own<float> all(block);
      const auto each = [&](auto f) { each_lane(block, lanes, first, p.rows, p.size, f); };
      each([&](int thread, const Lane& lane) {
        RawHeld raw;
        lane.read(p.in, p.type, lane.row * p.size, raw);
        if (p.in_a_row != 0) {
          lane.read(p.scale, p.scale_type, 0, scale[thread]);
          if (p.bias != 0) lane.read(p.bias, p.bias_type, 0, bias[thread]);
        }
        lane.take(raw, p.type, held[thread]);
        all[thread] = lane.all_of(held[thread], 0, [](float x) { return x; }, sum_of);
      });
      if (p.centred != 0) combine_teams(block, all, words, lanes, sum_of);
      each([&](int thread, const Lane& lane) {
        const float mean = p.centred != 0 ? all[thread] / size : 0;
        lane.change(held[thread], [&](float x) { return x - mean; });
        all[thread] = lane.all_of(held[thread], 0, [](float x) { return x * x; }, sum_of);
      });
      combine_teams(block, all, words, lanes, sum_of);
      each([&](int thread, const Lane& lane) {
        const float factor = 1 / std::sqrt(all[thread] / size + float(p.epsilon));
        lane.change(held[thread], [&](float x) { return x * factor; });
        if (p.in_a_row != 0) {
          finish(lane, held[thread], scale[thread], bias[thread]);
        } else {
          finish_elsewhere(lane, held[thread]);
        }
        lane.write(p.out, p.type, held[thread]);
      });
    }
  }

 private:
  HEDDLE_DEVICE void finish(const Lane& lane, Held& held, const RawHeld& scales,
                            const RawHeld& biases) const {
    Held scale, bias{};
    lane.take(scales, p.scale_type, scale);
    if (p.bias != 0) lane.take(biases, p.bias_type, bias);
    lane.each_quad([&](int64_t, int at) {
      for (int e = at; e < at + kQuad; ++e) held.x[e] = held.x[e] * scale.x[e] + bias.x[e];
    });
  }
  HEDDLE_DEVICE void finish_elsewhere(const Lane& lane, Held& held) const {
    lane.each_quad([&](int64_t element, int at) {
      for (int e = 0; e < kQuad; ++e) {
        const NormPlace at_e = place_of(p, lane.row, element + e < p.size ? element + e : element);
        const float scale = load<float, NarrowFloats>(p.scale, p.scale_type, at_e.scale);
        const float bias = p.bias == 0 ? 0 : load<float, NarrowFloats>(p.bias, p.bias_type, at_e.bias);
        held.x[at + e] = held.x[at + e] * scale + bias;
      }
    });
  }
};

}  // namespace heddle::cuda
