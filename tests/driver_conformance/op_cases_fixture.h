// op_cases_fixture.h: what each operator is tried on: shapes, attributes, element types. The values are
// random; the reference is the judge.
//
//   What       One Case is one node. Its inputs of type T take each of the case's dtypes in turn.
//   Threads    Plain data.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace heddle::conformance {

// Of integer attributes.
using I = int64_t;
using Is = std::vector<int64_t>;

using ir::DType;
using ir::Extents;

struct In {
  Extents extents;
  double low = -2, high = 2;
  std::optional<DType> dtype;                 // else T
  bool constant = false;                      // a constant of the graph: a weight, a shape
  std::optional<std::vector<int64_t>> fixed;  // its elements
  bool absent = false;
};

inline In T(Extents extents, double low = -2, double high = 2) {
  return {extents, low, high, {}, false, {}, false};
}
inline In weight(Extents extents, double low = -2, double high = 2) {
  return {extents, low, high, {}, true, {}, false};
}
inline In bools(Extents extents) { return {extents, -1, 1, DType::kBool, false, {}, false}; }
inline In index(Extents extents, double low, double high) {
  return {extents, low, high, DType::kI64, false, {}, false};
}
inline In f32s(Extents extents) { return {extents, -2, 2, DType::kF32, false, {}, false}; }
inline In none() { return {{}, 0, 0, {}, false, {}, true}; }
In ints(std::vector<int64_t> values);  // a constant of rank 1
In scalar(int64_t value);              // of rank 0, T
In scalar_i64(int64_t value);

inline const std::vector<DType> kFloats = {DType::kF32, DType::kF16, DType::kBF16, DType::kF64};
inline const std::vector<DType> kF32 = {DType::kF32};
inline const std::vector<DType> kNumbers = {DType::kF32, DType::kF16, DType::kBF16, DType::kF64, DType::kI8,
                                            DType::kU8,  DType::kI16, DType::kI32,  DType::kI64};
inline const std::vector<DType> kSigned = {DType::kF32, DType::kF16, DType::kBF16, DType::kF64,
                                           DType::kI8,  DType::kI16, DType::kI32,  DType::kI64};
inline const std::vector<DType> kAll = {DType::kF32, DType::kF16, DType::kBF16, DType::kF64, DType::kI8,
                                        DType::kU8,  DType::kI16, DType::kI32,  DType::kI64, DType::kBool};
inline const std::vector<DType> kBools = {DType::kBool};

struct Case {
  std::string_view op;
  std::vector<In> in;
  ir::Attributes attributes = {};
  std::vector<DType> dtypes = kFloats;
  size_t outputs = 1;
};

void add_elementwise_cases(std::vector<Case>& cases);
void add_movement_cases(std::vector<Case>& cases);
void add_reduction_cases(std::vector<Case>& cases);
void add_neural_cases(std::vector<Case>& cases);
void add_window_cases(std::vector<Case>& cases);
void add_recurrent_cases(std::vector<Case>& cases);
void add_placement_cases(std::vector<Case>& cases);
void add_control_cases(std::vector<Case>& cases);
std::vector<Case> all_cases();

}  // namespace heddle::conformance
