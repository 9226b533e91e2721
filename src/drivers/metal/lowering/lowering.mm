#include "drivers/metal/lowering/lowering.h"

#include "drivers/metal/lowering/graph_work.h"

namespace heddle::metal {

const ir::Tensor* Lowering::constant(size_t input) const {
  return has(input) && value(input).is_constant() ? &*value(input).constant : nullptr;
}

Result<Axes> Lowering::integers(size_t input, std::string_view what) const {
  if (const ir::Tensor* tensor = constant(input)) return tensor->to_i64();
  return Status::unsupported(what, " is known when it runs only; Metal needs it while compiling");
}

Tensor Lowering::within(size_t input, Tensor indices, int64_t extent) {
  Tensor low = emit.whole(-extent, dtype_of(indices)), high = emit.whole(extent, dtype_of(indices));
  Tensor zero = emit.whole(0, dtype_of(indices));
  const auto from_front = [&](Tensor t) { return emit.choose(emit.less(t, zero), emit.add(t, high), t); };
  if (const ir::Tensor* known = constant(input)) {
    bool inside = true;
    for (int64_t i = 0; i < known->elements(); ++i) {
      const int64_t index = known->get_i64(i);
      inside = inside && index >= -extent && index < extent;
    }
    if (inside) return from_front(indices);
  }
  Tensor wrong = emit.either(emit.less(indices, low), emit.greater_equal(indices, high));
  mistakes.push_back({wrong, input, text("an index is outside [", -extent, ", ", extent - 1, "]")});
  return from_front(emit.choose(wrong, zero, indices));
}

}  // namespace heddle::metal
