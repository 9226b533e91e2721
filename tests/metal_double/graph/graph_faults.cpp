#include "tests/metal_double/graph/graph_faults.h"

#include "base/atomic.h"

namespace heddle::metal_double {
namespace {

struct Kind {
  Fault fault;
  const char* recipe;
  int together;  // runs in flight from which on it is wrong
};
constexpr Kind kKindsOfFault[] = {
    {Fault::kPlainProductAtThree, kPlainProduct, 3},
    {Fault::kLayerNormAtFour, kLayerNormKernel, 4},
    {Fault::kPackedViewAtEight, kPackedView, 8},
};

Atomic<int> in_flight[std::size(kKindsOfFault)];  // runs; added and taken by any thread

}  // namespace

InFlight::InFlight(const Plan& plan) {
  static_assert(std::size(kKindsOfFault) == kKinds);
  for (size_t i = 0; i < kKinds; ++i) {
    counted_[i] = plan.holds(kKindsOfFault[i].recipe);
    if (!counted_[i]) continue;
    const int together = in_flight[i].add_acq_rel(1) + 1;
    wrong_ = wrong_ || (together >= kKindsOfFault[i].together && is_on(kKindsOfFault[i].fault));
  }
}

InFlight::~InFlight() {
  for (size_t i = 0; i < kKinds; ++i) {
    if (counted_[i]) in_flight[i].sub_acq_rel(1);
  }
}

}  // namespace heddle::metal_double
