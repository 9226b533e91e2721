// bounds.h: what bounds of bins and of clamp may be, for eager calls and for graphs.
#pragma once

#include <heddle/heddle.h>

#include <cmath>
#include <optional>
#include <sstream>
#include <string>

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
};

// Of a whole type that does not hold every i64; nothing for others.
inline std::optional<WholeRange> range_of(DType dtype) {
  switch (dtype) {
    case DType::u8:
      return WholeRange{0, 255};
    case DType::i8:
      return WholeRange{-128, 127};
    case DType::i16:
      return WholeRange{-32768, 32767};
    case DType::i32:
      return WholeRange{-2147483648.0, 2147483647.0};
    default:
      return std::nullopt;
  }
}

}  // namespace heddle::torch_backend
