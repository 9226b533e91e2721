// Attention over heads that are slices of the last axis; see ir/ops/attention.cpp for what it means.
#include <cmath>
#include <limits>

#include "drivers/metal/lowering/products.h"

namespace heddle::metal {
namespace {

// Each [batch, key heads, positions, extent]; the queries of the heads that share a key head lie one after
// the other along its positions.
struct Parts {
  Tensor q, k, v;
};
struct Form {
  int64_t batch, queries, keys, heads, key_heads, extent, value_extent;
  int64_t shared() const { return heads / key_heads; }
};

Form form_of(const Lowering& l) {
  const int64_t heads = l.attributes().i64("num_heads"), key_heads = l.attributes().i64("kv_heads", heads);
  const ir::Extents q = l.extents(0);
  if (l.attributes().i64("packed") != 0) {
    const int64_t extent = q[2] / (heads + 2 * key_heads);
    return {q[0], q[1], q[1], heads, key_heads, extent, extent};
  }
  return {q[0], q[1], l.extents(1)[1], heads, key_heads, q[2] / heads, l.extents(2)[2] / key_heads};
}

// [batch, positions, heads * extent] as [batch, heads, positions, extent]
Tensor by_head(const Emit& e, Tensor x, int64_t heads) {
  const ir::Extents from = extents_of(x);
  return e.transpose(e.reshape(x, {from[0], from[1], heads, from[2] / heads}), {0, 2, 1, 3});
}

// q, k and v are cut from the packed projection before they are turned. Turned as a whole, they are views of
// one another's rows with the projection's strides, which attention reads wrongly at eight threads.
Parts unpack(const Lowering& l, const Form& f) {
  const Emit& e = l.emit;
  const int64_t q = f.heads * f.extent, k = f.key_heads * f.extent;
  Tensor all = l.inputs[0];
  if (l.defences.unpacks_projections) {
    return {by_head(e, e.slice(all, 2, 0, q), f.heads), by_head(e, e.slice(all, 2, q, k), f.key_heads),
            by_head(e, e.slice(all, 2, q + k, k), f.key_heads)};
  }
  all = by_head(e, all, f.heads + 2 * f.key_heads);
  return {e.slice(all, 1, 0, f.heads), e.slice(all, 1, f.heads, f.key_heads),
          e.slice(all, 1, f.heads + f.key_heads, f.key_heads)};
}

Parts parts_of(const Lowering& l, const Form& f) {
  const Emit& e = l.emit;
  if (l.attributes().i64("packed") != 0) return unpack(l, f);
  return {by_head(e, l.inputs[0], f.heads), by_head(e, l.inputs[1], f.key_heads),
          by_head(e, l.inputs[2], f.key_heads)};
}

// -infinity where a query may not attend.
Tensor masked(const Lowering& l, const Form& f, Tensor scores) {
  const Emit& e = l.emit;
  Tensor never = e.like(-std::numeric_limits<double>::infinity(), scores);
  if (l.has(3)) {
    Tensor mask = e.with_rank(l.inputs[3], 4);
    if (dtype_of(mask) == ir::DType::kBool) {
      scores = e.choose(mask, scores, never);
    } else {
      scores = e.add(scores, e.cast(mask, dtype_of(scores)));
    }
  }
  if (l.attributes().i64("causal") != 0) {
    const ir::Extents square{1, 1, f.queries, f.keys};
    scores = e.choose(e.greater(e.counting(3, square), e.counting(2, square)), never, scores);
  }
  return scores;
}

// Rows that may attend to nothing give zeros.
Tensor softmax_of_masked(const Emit& e, Tensor scores) {
  Tensor most = e.greatest(scores, {3}), zero = e.like(0, scores), one = e.like(1, scores);
  Tensor never = e.like(-std::numeric_limits<double>::infinity(), scores);
  Tensor powers = e.exp(e.sub(scores, e.choose(e.equal(most, never), zero, most)));
  Tensor total = e.sum(powers, {3});
  return e.div(powers, e.choose(e.equal(total, zero), one, total));
}

Status lower_attention(Lowering& l) {
  const Emit& e = l.emit;
  const Form f = form_of(l);
  if (f.keys == 0) {
    l.outputs[0] = e.filled(0, l.out_dtype(), l.out_extents());
    return {};
  }
  const Parts p = parts_of(l, f);
  const double given = l.attributes().f64("scale");
  const double scale = given != 0 ? given : 1 / std::sqrt(static_cast<double>(f.extent));
  const int64_t rows = f.shared() * f.queries;
  Tensor q = e.reshape(e.mul(p.q, e.like(scale, p.q)), {f.batch, f.key_heads, rows, f.extent});
  Tensor scores = e.reshape(product(l, q, e.swap_last(p.k)), {f.batch, f.heads, f.queries, f.keys});
  const bool may_be_empty = l.has(3);
  Tensor weights = masked(l, f, scores);
  weights = may_be_empty ? softmax_of_masked(e, weights) : e.softmax(weights, 3);
  weights = e.reshape(weights, {f.batch, f.key_heads, rows, f.keys});
  Tensor out = e.reshape(product(l, weights, p.v), {f.batch, f.heads, f.queries, f.value_extent});
  l.outputs[0] = e.reshape(e.transpose(out, {0, 2, 1, 3}), l.out_extents());
  return {};
}

}  // namespace

std::span<const PathEntry> attention_paths() {
  using enum Path;
  static constexpr PathEntry kEntries[] = {
      {"Attention", composed, lower_attention, kWide | kTakesEmpty,
       "by products and softmax: MPSGraph's scaled dot product needs macOS 15 and lets no row attend to "
       "nothing; "
       "q, k and v are cut apart first, since packed ones are read wrongly at 8 threads"},
  };
  return kEntries;
}

}  // namespace heddle::metal
