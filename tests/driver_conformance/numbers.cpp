// The numbers of cases and their comparison: loops over elements, which are compiled with optimisation.
#include <cmath>
#include <cstring>
#include <random>

#include "base/status.h"
#include "session_fixture.h"

namespace heddle::conformance {

ir::Tensor random_tensor(ir::DType dtype, const ir::Extents& extents, uint32_t seed, double low,
                         double high) {
  std::mt19937 random(seed * 7919 + 17 * static_cast<uint32_t>(extents.elements()));
  std::uniform_real_distribution<double> real(low, high);
  ir::Tensor tensor = ir::Tensor::zeros(dtype, extents);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const double x = real(random);
    if (dtype == ir::DType::kBool) {
      tensor.set(i, x > (low + high) / 2 ? 1 : 0);
    } else {
      tensor.set(i, ir::is_float(dtype) ? x : std::floor(x));
    }
  }
  return tensor;
}

std::string difference(const ir::Tensor& got, const ir::Tensor& wanted, Tolerance tolerance) {
  if (!(got.type() == wanted.type())) return text("the type is ", got.type(), ", not ", wanted.type());
  for (int64_t i = 0; i < wanted.elements(); ++i) {
    if (!ir::is_float(wanted.dtype())) {
      if (got.get_i64(i) != wanted.get_i64(i))
        return text("element ", i, " is ", got.get_i64(i), ", not ", wanted.get_i64(i));
      continue;
    }
    const double a = got.get(i), b = wanted.get(i);
    if (!test::is_close(a, b, tolerance)) return text("element ", i, " is ", a, ", not ", b);
  }
  return "";
}

bool same_bits(const ir::Tensor& a, const ir::Tensor& b) {
  return a.type() == b.type() &&
         (a.bytes() == 0 || std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0);
}

}  // namespace heddle::conformance
