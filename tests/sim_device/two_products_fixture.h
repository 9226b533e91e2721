// two_products_fixture.h: a small model that needs memory between its nodes, and what it gives.
//
//   What       y = tanh(x w1) w2 over rows of 8; Rows are some of them, and know the answer.
//   Threads    Values.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "device/view.h"
#include "ir/builder.h"
#include "ir/tensor.h"

namespace heddle::sim::test {

using device::View;
using ir::DType;
using ir::Extents;

// y = tanh(x w1) w2 on one row, in double precision.
inline float reference(const float* row, int64_t column) {
  const auto weight = [](double first, int64_t i) { return first + 0.01 * static_cast<double>(i % 7); };
  double sum = 0;
  for (int64_t k = 0; k < 8; ++k) {
    double inner = 0;
    for (int64_t i = 0; i < 8; ++i) inner += row[i] * weight(0.1, 8 * i + k);
    sum += std::tanh(inner) * weight(-0.2, 8 * k + column);
  }
  return static_cast<float>(sum);
}

struct Rows {
  Rows(int64_t rows, double first) : extents{rows, 8}, values(static_cast<size_t>(8 * rows)) {
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(std::sin(first + 0.3 * static_cast<double>(i)));
  }
  View view() { return View::contiguous(reinterpret_cast<std::byte*>(values.data()), DType::kF32, extents); }
  // Of the model applied `times` times.
  bool gives(const float* got, int times = 1) const {
    std::vector<float> now = values, next = values;
    for (int t = 0; t < times; ++t) {
      for (size_t i = 0; i < now.size(); ++i)
        next[i] = reference(&now[i - i % 8], static_cast<int64_t>(i % 8));
      now = next;
    }
    for (size_t i = 0; i < now.size(); ++i) {
      if (!(std::abs(got[i] - now[i]) < 1e-4F)) return false;
    }
    return true;
  }
  Extents extents;
  std::vector<float> values;
};

inline ir::Graph two_products() {
  ir::Builder b;
  const ir::ValueId x = b.input("x", {DType::kF32, {ir::Dim::symbol("batch"), 8}});
  const auto weight = [&](double first) {
    ir::Tensor made = ir::Tensor::zeros(DType::kF32, {8, 8});
    for (int64_t i = 0; i < 64; ++i) made.set(i, first + 0.01 * static_cast<double>(i % 7));
    return b.constant(made);
  };
  b.output(*b.node("MatMul", {*b.node("Tanh", {*b.node("MatMul", {x, weight(0.1)})}), weight(-0.2)}));
  return *b.take();
}

}  // namespace heddle::sim::test
