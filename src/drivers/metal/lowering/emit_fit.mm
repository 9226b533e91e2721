// What fits into MPSGraph's arrays.
#include <algorithm>
#include <cstdlib>

#include "drivers/metal/lowering/emit.h"

namespace heddle::metal {

NSString* const kTooLarge = @"HeddleTooLarge";

namespace {

// As far as an i64 goes: what is beyond is too large in any case.
int64_t saturated_product(int64_t x, int64_t y) {
  int64_t product = 0;
  return __builtin_mul_overflow(x, y, &product) ? Limits::kNone : product;
}

[[noreturn]] void raise_too_large(const std::string& what) {
  [NSException raise:kTooLarge format:@"%s", what.c_str()];
  std::abort();  // raise does not return
}

}  // namespace

ir::Extents common(const ir::Extents& x, const ir::Extents& y) {
  const ir::Extents &longer = x.rank() < y.rank() ? y : x, &shorter = x.rank() < y.rank() ? x : y;
  ir::Extents both = longer;
  for (size_t i = 0; i < shorter.rank(); ++i) {
    const size_t axis = longer.rank() - shorter.rank() + i;
    both[axis] = std::max(longer[axis], shorter[i]);
  }
  return both;
}

void Emit::require_fit(ir::DType dtype, const ir::Extents& extents) const {
  int64_t elements = 1;
  for (const int64_t extent : extents) elements = saturated_product(elements, extent);
  const auto axes = static_cast<int64_t>(extents.rank());
  if (axes > limits_.array_axes) {
    raise_too_large(text("an array ", dtype, extents, " has ", axes, " axes; MPSGraph takes at most ",
                         limits_.array_axes));
  }
  if (elements > limits_.array_elements) {
    raise_too_large(text("an array ", dtype, extents, " has ", elements, " elements; MPSGraph takes at most ",
                         limits_.array_elements));
  }
  const int64_t bytes = saturated_product(elements, ir::size_of(dtype));
  if (bytes > limits_.array_bytes) {
    raise_too_large(text("an array ", dtype, extents, " has ", bytes, " bytes; MPSGraph takes at most ",
                         limits_.array_bytes));
  }
}

void Emit::require_common(Tensor x, Tensor y) const {
  require_fit(dtype_of(x), common(extents_of(x), extents_of(y)));
}

}  // namespace heddle::metal
