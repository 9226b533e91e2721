// bins.h: what bounds of bins may be, for eager calls and for graphs.
#pragma once

#include <cmath>
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

}  // namespace heddle::torch_backend
