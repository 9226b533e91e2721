// row_bits.h: how a product is cut, so that each of its rows has the bits of the row alone.
//
//   What       exact models promise those bits. Where oneDNN has brgemm (AVX-512, AMX) each of its products
//              keeps that promise. Elsewhere one row is a gemv, the last one to three of many rows are summed
//              by another kernel, and K is summed in blocks where a gemv takes it whole. Which counts of rows
//              agree with the lone row is not written down here: it is tried, on random numbers.
//              mixes_rows(): whether the processor's products need this at all. RowBits: for each kind of
//              product, the plan.
//   Invariant  A plan follows from the kind of product, the processor and oneDNN, never from how many rows
//              there are: all programs of a device compute a row by the same sums. Every plan has one row.
//   Limits     What is tried is compared bit by bit in kTriedRows rows, each count of rows at each position.
//              Two orders of one sum agree in about half of all numbers, so none agrees by chance.
//   Threads    Any; what is tried is tried once.
#pragma once

#include <string>
#include <vector>

#include "base/once_map.h"
#include "drivers/host/onednn/engine.h"

namespace heddle::host {

struct ProductProblem;
struct LinearWeight;

struct RowPlan {
  int64_t depth = 0;               // of K, summed by one primitive; what follows is added to it
  std::vector<int64_t> rows = {};  // that a primitive computes at once, falling; the last is one
};

inline constexpr int64_t kTriedRows = 24;

class RowBits {
 public:
  Result<Ref<const RowPlan>> plan(const Engine& engine, const ProductProblem& problem,
                                  const LinearWeight& weight);

 private:
  OnceMap<std::string, RowPlan> plans_{{.count = 4096}};
};

Result<bool> mixes_rows(const Engine& engine);

}  // namespace heddle::host
