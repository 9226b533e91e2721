// map.h: element-wise operators over tensors that are broadcast against each other, and copies.
#pragma once

#include "drivers/cuda/kernels/block.h"
#include "drivers/cuda/kernels/scalar.h"
#include "drivers/cuda/kernels/walk.h"

namespace heddle::cuda {

struct MapSource {
  uint64_t data = 0;
  Type type = Type::kF32;
  int64_t strides[kAxes] = {};  // in elements; 0 where it is broadcast
};

// out[i] = apply(in...); the output is row-major over `axes`.
struct MapParams {
  int64_t count = 0;
  Axes axes;
  MapSource in[3];
  uint64_t out = 0;
  Type out_type = Type::kF32;
  Numbers numbers;
};

template <class Op, class C>
struct Map {
  MapParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.count, [&](int64_t i) {
      int64_t at[Op::count] = {};
      places_of(p.axes, i, [&](int axis, int64_t place) {
        for (int k = 0; k < Op::count; ++k) at[k] += place * p.in[k].strides[axis];
      });
      C x[Op::count];
      for (int k = 0; k < Op::count; ++k)
        x[k] = p.in[k].data == 0 ? C(0) : load<C>(p.in[k].data, p.in[k].type, at[k]);
      store<C>(p.out, p.out_type, i, Op::template apply<C>(x, p.numbers));
    });
  }
};

// Elements of sizeof(Bits) bytes, by in[0] (a bool) from in[1] or in[2].
template <class Bits>
struct Choose {
  MapParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.count, [&](int64_t i) {
      int64_t at[3] = {};
      places_of(p.axes, i, [&](int axis, int64_t place) {
        for (int k = 0; k < 3; ++k) at[k] += place * p.in[k].strides[axis];
      });
      const int from = global<const uint8_t>(p.in[0].data)[at[0]] != 0 ? 1 : 2;
      global<Bits>(p.out)[i] = global<const Bits>(p.in[from].data)[at[from]];
    });
  }
};

// Elements of sizeof(Bits) bytes from places with strides to places with strides.
struct MoveParams {
  int64_t count = 0;
  Axes axes;
  uint64_t from = 0, to = 0;  // of the first element
  int64_t from_strides[kAxes] = {}, to_strides[kAxes] = {};
  uint64_t value = 0;  // where `from` is 0
};

template <class Bits>
struct Move {
  MoveParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.count, [&](int64_t i) {
      int64_t from = 0, to = 0;
      places_of(p.axes, i, [&](int axis, int64_t place) {
        from += place * p.from_strides[axis];
        to += place * p.to_strides[axis];
      });
      global<Bits>(p.to)[to] = p.from == 0 ? static_cast<Bits>(p.value) : global<const Bits>(p.from)[from];
    });
  }
};

}  // namespace heddle::cuda
