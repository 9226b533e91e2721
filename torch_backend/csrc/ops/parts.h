// parts.h: steps that entries of several files of ops/ share.
//
//   What       Arithmetic on sizes that may be values of nodes, operands made ready for arithmetic, and the
//              larger operators that others contain.
//   Threads    As call.h.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "../call.h"

namespace heddle::torch_backend {

constexpr Value kAbsent = GraphBuilder::absent();
inline bool present(Value value) { return value.id != kAbsent.id; }

inline constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();  // of a slice: as far as it goes

// Sizes: a node only where one is not known.
Int plus(Call& call, const Int& a, const Int& b);
Int times(Call& call, const Int& a, const Int& b);
std::vector<Int> sizes_of(Call& call, Value value);

// The tensor argument in the dtype that arithmetic is done in; absent() for None.
Value widened(Call& call, int argument);
// [0, rank): an axis; a tensor of rank 0 has one.
int axis_in(int64_t axis, int rank);
// A number for each of `axes`; a lone number is for all, none at all gives `otherwise`.
std::vector<int64_t> per_axis(const Call& call, int argument, size_t axes,
                              const std::vector<int64_t>& otherwise = {});
std::vector<int64_t> order_with_last(int rank, int axis);  // `axis` moved behind all others
Value identity(Call& call, Value value);
Value reduce(Call& call, std::string_view op, Value value, const std::vector<int64_t>& axes, bool keep);
Value constant_i64(Call& call, const Shape& shape, const std::vector<int64_t>& values);
// Reshaped; an extent of 0 copies that of `value` at its place.
Value regroup(Call& call, Value value, const std::vector<int64_t>& extents);

// x @ weight' + bias, weight [out, in]; floats in wide dtypes. bias may be absent.
Value linear(Call& call, Value x, Value weight, Value bias);
// Over the axes from `axis` on. weight and bias may be absent.
Value layer_norm(Call& call, Value x, int axis, Value weight, Value bias, double eps);

struct Attending {
  Value mask = kAbsent;  // broadcasts to [batch, heads, queries, keys]: bool, true may be seen; or added
  bool causal = false;   // query i sees keys 0 to i
  std::optional<double> scale;
  int64_t heads = 1, key_heads = 1;
};
// q [batch, queries, heads * size], k and v the same with key_heads; or all three side by side in q, k and v
// absent. The result is as q. A query that sees no key gets zeros.
Value attend(Call& call, Value q, Value k, Value v, const Attending& how);

}  // namespace heddle::torch_backend
