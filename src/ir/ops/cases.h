// cases.h: the operators' cases, by family; cases_test.cpp runs them all and checks that every operator has
// one.
//
//   What       One Case is one node with hand-computed results. Shapes are symbolic; the symbols b and s
//              stand for 2 and 3.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "ir/op.h"

namespace heddle::ir {

using Ints = std::vector<int64_t>;

// b = 2, s = 3 in every case.
inline const Dim kB = Dim::symbol("b");
inline const Dim kS = Dim::symbol("s");

inline const std::vector<double> kSix = {1, 2, 3, 4, 5, 6};
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

inline Attribute i(int64_t n) { return n; }
inline Attribute text_of(const char* s) { return std::string(s); }

struct Sample {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<double> values;
  std::vector<Dim> contents;  // as compilation knows them, instead of values
  bool constant = false;      // known at compile time
  bool absent = false;
};

inline Sample f32(Shape shape, std::vector<double> values) {
  return {DType::kF32, std::move(shape), std::move(values), {}};
}
inline Sample f16(Shape shape, std::vector<double> values) {
  return {DType::kF16, std::move(shape), std::move(values), {}};
}
inline Sample i64(Shape shape, std::vector<double> values) {
  return {DType::kI64, std::move(shape), std::move(values), {}};
}
inline Sample i32(Shape shape, std::vector<double> values) {
  return {DType::kI32, std::move(shape), std::move(values), {}};
}
inline Sample flags(Shape shape, std::vector<double> values) {
  return {DType::kBool, std::move(shape), std::move(values), {}};
}
inline Sample u8(Shape shape, std::vector<double> values) {
  return {DType::kU8, std::move(shape), std::move(values), {}};
}
inline Sample fixed(Sample a) {
  a.constant = true;
  return a;
}
inline Sample numbers(std::vector<double> values) {
  const int64_t count = static_cast<int64_t>(values.size());
  return fixed(i64({count}, std::move(values)));
}
inline Sample number(double value) { return fixed(i64({}, {value})); }
inline Sample dims(std::vector<Dim> contents) {
  const int64_t count = static_cast<int64_t>(contents.size());
  return {DType::kI64, {count}, {}, std::move(contents)};
}
inline Sample none() { return {DType::kF32, {}, {}, {}, false, true}; }

struct Case {
  std::string op;
  std::vector<Sample> in;
  Attributes attributes;
  std::vector<Sample> out;
};

std::vector<Case> elementwise_cases();
std::vector<Case> shape_cases();
std::vector<Case> movement_cases();
std::vector<Case> reduce_cases();
std::vector<Case> neural_cases();
std::vector<Case> window_cases();
std::vector<Case> recurrent_cases();
std::vector<Case> placement_cases();
std::vector<Case> control_cases();

}  // namespace heddle::ir
