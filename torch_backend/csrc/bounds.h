// bounds.h: what bounds of bins and of clamp may be, for eager calls and for graphs.
#pragma once

#include <heddle/heddle.h>

#include <cmath>
#include <optional>
#include <sstream>
#include <string>

#include "since.h"

namespace heddle::torch_backend {

// In PyTorch's words; empty: nothing is wrong with them.
inline std::string wrong_with_bounds(double low, double high) {
  std::ostringstream said;
  if (!std::isfinite(low) || !std::isfinite(high)) {
    said << "torch.histc: range of [" << low << ", " << high << "] is not finite";
  } else if (low >= high) {
    said << "torch.histc: max must be larger than min";
  }
  return said.str();
}

struct WholeRange {
  double lowest, highest;
  const char* in_pytorch;  // the names of its type
  const char* in_cpp;
};

// Of a whole type that does not hold every i64; nothing for others.
inline std::optional<WholeRange> range_of(DType dtype) {
  switch (dtype) {
    case DType::u8:
      return WholeRange{0, 255, "Byte", "uint8_t"};
    case DType::i8:
      return WholeRange{-128, 127, "Char", "int8_t"};
    case DType::i16:
      return WholeRange{-32768, 32767, "Short", "int16_t"};
    case DType::i32:
      return WholeRange{-2147483648.0, 2147483647.0, "Int", "int"};
    default:
      return std::nullopt;
  }
}

// A bound of clamp is taken where its dtype does not hold it if it bounds nothing, and refused where it would
// force every element to it. Before PyTorch 2.15 all are refused, but PyTorch takes negative ones for u8
// modulo 256. In PyTorch's words; empty: nothing is wrong with it.
enum class Bound : uint8_t { least, greatest };
inline std::string wrong_with_bound(const WholeRange& range, Bound bound, double whole) {
  std::ostringstream said;
  if constexpr (kBoundsMayLieOutside) {
    const bool forces = bound == Bound::least ? whole > range.highest : whole < range.lowest;
    if (forces) {
      said << "Clamp " << (bound == Bound::least ? "min" : "max") << " value " << whole
           << " is outside the representable range of " << range.in_pytorch;
    }
  } else {
    const double lowest = range.lowest == 0 ? -range.highest : range.lowest;
    if (whole < lowest || whole > range.highest)
      said << "value cannot be converted to type " << range.in_cpp << " without overflow";
  }
  return said.str();
}

}  // namespace heddle::torch_backend
