#include "drivers/metal/lowering/extremes.h"

namespace heddle::metal {
namespace {

constexpr int64_t kDigitBits = 16;

Tensor scatter_greatest_floats(const Emit& e, Tensor data, Tensor updates, Tensor targets) {
  return e.scatter_nd(data, updates, e.reshape(targets, {extents_of(targets)[0], 1}), MPSGraphScatterModeMax);
}

// Of i32 or i64. A candidate whose higher digits are not the greatest takes part no more: its digit is -1.
Tensor greatest_by_digits(const Emit& e, Tensor data, Tensor updates, Tensor targets) {
  const ir::DType dtype = dtype_of(data);
  Tensor mask = e.whole((1 << kDigitBits) - 1, dtype), scale = e.whole(1 << kDigitBits, dtype);
  Tensor out_of_it = e.scalar(-1, ir::DType::kF32);
  Tensor found = nil, data_leads = nil, update_leads = nil;
  for (int64_t low = 8 * ir::size_of(dtype) - kDigitBits; low >= 0; low -= kDigitBits) {
    const bool first = found == nil;
    // The first digit keeps the sign.
    const auto digit = [&](Tensor t, Tensor leads) {
      t = e.shift_right(t, e.whole(low, dtype));
      t = e.cast(first ? t : e.bit_and(t, mask), ir::DType::kF32);
      return first ? t : e.choose(leads, t, out_of_it);
    };
    Tensor of_data = digit(data, data_leads), of_updates = digit(updates, update_leads);
    Tensor best = scatter_greatest_floats(e, of_data, of_updates, targets);
    data_leads = e.equal(of_data, best);
    update_leads = e.equal(of_updates, e.gather(best, targets, 0));
    Tensor value = e.cast(best, dtype);
    found = first ? value : e.add(e.mul(found, scale), value);
  }
  return found;
}

}  // namespace

Tensor scatter_extreme(const Emit& e, Tensor data, Tensor updates, Tensor targets, bool greatest) {
  const ir::DType dtype = dtype_of(data);
  const int64_t bits = 8 * ir::size_of(dtype);
  if (ir::is_float(dtype) || bits <= e.limits().scatter_extreme_bits) {
    return e.scatter_nd(data, updates, e.reshape(targets, {extents_of(targets)[0], 1}),
                        greatest ? MPSGraphScatterModeMax : MPSGraphScatterModeMin);
  }
  const ir::DType wide = dtype == ir::DType::kI64 ? dtype : ir::DType::kI32;
  // The complement turns the order round.
  const auto turned = [&](Tensor t) { return greatest ? t : e.bit_not(t); };
  return e.cast(
      turned(greatest_by_digits(e, turned(e.cast(data, wide)), turned(e.cast(updates, wide)), targets)),
      dtype);
}

}  // namespace heddle::metal
