// panels_fixture.h: whether oneDNN's products keep a row's bits on this processor, for tests.
#pragma once

#include <dnnl.hpp>

namespace heddle::host {

// oneDNN's brgemm packs weights in panels, and sums a row in one order whatever is beside it. Its kernels for
// AVX2 do neither, so that products are cut by rows only, and none but exact ones have the same bits.
inline bool has_panels() {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto wanted = static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
  return (isa & wanted) == wanted;
}

}  // namespace heddle::host
