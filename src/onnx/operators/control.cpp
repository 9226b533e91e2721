// If, Loop and Scan: GraphReader reads them, for they hold graphs.
#include "onnx/operators.h"

namespace heddle::onnx {

std::span<const Operator> control_operators() {
  static constexpr Operator kTable[] = {
      {"If", 0, nullptr},
      {"Loop", 0, nullptr},
      {"Scan", 9, nullptr},
  };
  return kTable;
}

}  // namespace heddle::onnx
