// turned_panels.h: panels of y = x @ w + bias with a weight [n, k], computed as y' = w @ x'.
//
//   What       oneDNN's matmul lays such a weight out anew in each run. Turned, only x is, once a run; a
//              panel of the weight's rows is read as it lies, and its part of y' is turned back and gets its
//              bias.
//   Use        From above kMostFewRows rows, where oneDNN has brgemm; of f32 weights to kMostTurnedRows.
//   Invariant  Each element is summed along k in the order of brgemm's own product: the bits are the same.
//   Threads    Any, each with scratch of its own, once x is turned.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "drivers/host/onednn/primitive.h"
#include "drivers/host/step.h"

namespace heddle::host {

inline constexpr int64_t kMostTurnedRows = 64;

// to[c * to_stride + r] = from[r * from_stride + c], + bias[r] if that is given.
void turn(const float* from, int64_t from_stride, int64_t rows, int64_t columns, const float* bias, float* to,
          int64_t to_stride);

class TurnedPanels {
 public:
  // For panels of so many columns of y. Null where oneDNN has no kernel of its own for one of them.
  static Result<std::unique_ptr<const TurnedPanels>> make(const Engine& engine, int64_t m, int64_t k,
                                                          const std::vector<int64_t>& columns);

  uint64_t x_bytes() const;  // of x'
  // By the team where there is much of it; `width` threads at most.
  void turn_x(const RunContext& context, int width, const float* x, float* turned) const;

  uint64_t scratch_bytes(int64_t columns) const;
  // `w`, `bias` (or null) and `y` begin at the panel; y's rows are `y_stride` apart.
  Status run(int64_t columns, const float* turned_x, const float* w, const float* bias, float* y,
             int64_t y_stride, std::byte* scratch) const;

  const std::string& implementation() const { return kinds_.front().primitive->implementation(); }
  size_t primitives() const { return kinds_.size(); }

 private:
  struct Kind {
    int64_t columns;
    Ref<const Primitive> primitive;
  };
  TurnedPanels(int64_t m, int64_t k) : m_(m), k_(k) {}
  Result<bool> prepare(const Engine& engine, int64_t columns);
  uint64_t y_bytes(int64_t columns) const;

  int64_t m_, k_;
  std::vector<Kind> kinds_;
};

}  // namespace heddle::host
