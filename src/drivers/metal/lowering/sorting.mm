#include "drivers/metal/lowering/sorting.h"

#include <algorithm>
#include <bit>

namespace heddle::metal {
namespace {

constexpr int64_t kLongestRow = int64_t{1} << 30;

// Integers in the order of the elements, of `bits` bits and signed.
struct Keys {
  Tensor tensor;
  int64_t bits;
};

// The bits of a float, read as i32, are in order above 0; below, all but the sign are turned round.
Tensor keys_of_floats(const Emit& e, Tensor x) {
  const auto number = [&](int64_t value) { return e.whole(value, ir::DType::kI32); };
  x = e.cast(x, ir::DType::kF32);
  Tensor zero = e.like(0, x), nan = e.is_nan(x);
  Tensor bits = e.reinterpret(e.choose(e.equal(x, zero), zero, x), ir::DType::kI32);
  bits = e.choose(e.less(bits, number(0)), e.bit_xor(bits, number(INT32_MAX)), bits);
  return e.choose(nan, number(INT32_MAX), bits);
}

Keys keys_of(const Emit& e, Tensor x, bool descending) {
  const ir::DType dtype = dtype_of(x);
  Keys keys{x, 8 * ir::size_of(dtype) + (dtype == ir::DType::kU8 ? 1 : 0)};
  if (ir::is_float(dtype)) keys = {keys_of_floats(e, x), 32};
  if (dtype != ir::DType::kI64) keys.tensor = e.cast(keys.tensor, ir::DType::kI32);
  if (descending) keys.tensor = e.bit_not(keys.tensor);
  return keys;
}

Tensor order_of_part(const Emit& e, const Keys& keys) {
  const ir::Extents extents = extents_of(keys.tensor);
  const int64_t lane = extents[1];
  const auto number = [&](int64_t value) { return e.whole(value, ir::DType::kI32); };
  const int64_t digit_bits = 31 - std::bit_width(static_cast<uint64_t>(lane - 1));
  Tensor place = e.counting(1, {1, lane}), order = nil;
  for (int64_t low = 0; low < keys.bits; low += digit_bits) {
    const ir::DType dtype = dtype_of(keys.tensor);
    Tensor digit = keys.tensor;
    if (low > 0) digit = e.shift_right(digit, e.whole(low, dtype));
    // The last digit keeps the sign.
    if (low + digit_bits < keys.bits)
      digit = e.bit_and(digit, e.whole((int64_t{1} << digit_bits) - 1, dtype));
    digit = e.cast(digit, ir::DType::kI32);
    if (order != nil) digit = e.gather_elements(digit, order, 1);
    Tensor next = e.arg_sort(e.add(e.mul(digit, number(lane)), place), 1, false);
    order = order == nil ? next : e.gather_elements(order, next, 1);
  }
  return order;
}

}  // namespace

Result<Tensor> order_of_rows(const Emit& e, Tensor rows, bool descending) {
  const ir::Extents extents = extents_of(rows);
  if (e.limits().stable_sorts && e.limits().all_sorts && extents[0] <= e.limits().sort_rows)
    return e.arg_sort(ir::is_float(dtype_of(rows)) ? e.cast(rows, ir::DType::kF32) : rows, 1, descending);
  if (extents[1] > kLongestRow)
    return Status::unsupported("it orders ", extents[1], " elements; Metal orders at most ", kLongestRow);
  const Keys keys = keys_of(e, rows, descending);
  std::vector<Tensor> parts;
  for (int64_t begin = 0; begin < extents[0]; begin += e.limits().sort_rows) {
    const int64_t count = std::min(e.limits().sort_rows, extents[0] - begin);
    parts.push_back(order_of_part(e, {e.slice(keys.tensor, 0, begin, count), keys.bits}));
  }
  return e.concat(parts, 0);
}

}  // namespace heddle::metal
