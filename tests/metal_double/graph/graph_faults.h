// graph_faults.h: kernels of Apple's that are wrong when several threads are in them, on request.
//
//   What       A recipe of one of these names stands for such a kernel. While its fault is on and as many
//              runs that hold it are in flight as the fault takes, the one that came last is wrong.
//   In flight  From encoding until the work is over.
//   Threads    Any.
#pragma once

#include "tests/metal_double/control.h"
#include "tests/metal_double/graph/recipe.h"

namespace heddle::metal_double {

// Two plain matrices: MPSGraph hands them to the NDArray multiplication.
inline constexpr const char* kPlainProduct = "matrixMultiplicationWithPrimaryTensor: of two plain matrices";
// The fused normalisation: the Metal layer-norm kernel.
inline constexpr const char* kLayerNormKernel = "normalizationWithTensor:meanTensor:varianceTensor:";
// A part cut from a tensor that was turned: a view with the strides of the packed projection.
inline constexpr const char* kPackedView = "sliceTensor: of a turned tensor";

// Of one run. Movable into the run's work; the count ends with it.
class InFlight {
 public:
  explicit InFlight(const Plan& plan);
  ~InFlight();
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

  bool wrong() const { return wrong_; }

 private:
  static constexpr size_t kKinds = 3;
  bool counted_[kKinds] = {};
  bool wrong_ = false;
};

}  // namespace heddle::metal_double
