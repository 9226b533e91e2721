// attention.cpp: attention on its own, with its projections, and within a whole encoder layer.
#include <algorithm>
#include <cmath>
#include <limits>

#include "../table.h"
#include "lanes.h"
#include "parts.h"

namespace heddle::torch_backend {
namespace {

const std::vector<int64_t> kSwapHeads = {0, 2, 1, 3};

// ---- attention on its own

// [batch, heads, positions, size] as [batch, positions, heads * size], and back.
Value rows_of(Call& call, Value x) {
  return regroup(call, call.transpose(x, kSwapHeads), {0, 0, call.extent(x, 1) * call.extent(x, 3)});
}
Value heads_of(Call& call, Value rows, int64_t heads) {
  const Value apart = regroup(call, rows, {0, 0, heads, call.extent(rows, 2) / heads});
  return call.transpose(apart, kSwapHeads);
}

// [.., positions, size] with the leading extents `lead`.
Value spread(Call& call, Value x, const std::vector<Int>& lead) {
  std::vector<Int> sizes = lead;
  sizes.push_back(call.size_of(x, -2));
  sizes.push_back(call.size_of(x, -1));
  return call.expand(x, sizes);
}

struct Operands {
  Value q, k, v, mask;
};

// [batch, positions, size], and the same batch; what is not known before the call fits.
bool fits_rows(Call& call, const Operands& in) {
  if (call.rank(in.q) != 3 || call.rank(in.k) != 3 || call.rank(in.v) != 3) return false;
  const auto batch = call.shape(in.q)[0];
  return batch == call.shape(in.k)[0] && batch == call.shape(in.v)[0];
}

// Leading extents that differ are broadcast against each other, and become one.
Value attend_over_one_axis(Call& call, Operands in, Attending how) {
  std::vector<Int> lead;
  for (const std::optional<int64_t>& extent : call.result_shape()) {
    if (!extent) call.unsupported("leading dimensions of these shapes have to be fixed ones");
    lead.push_back(*extent);
  }
  lead.resize(lead.size() - 2, Int(0));
  const auto as_one = [&](Value x) {
    return call.reshape(spread(call, x, lead), {-1, call.size_of(x, -2), call.size_of(x, -1)});
  };
  if (present(in.mask) && call.rank(in.mask) > 2) {
    std::vector<Int> sizes = lead;
    sizes.push_back(call.size_of(in.q, -2));
    sizes.push_back(call.size_of(in.k, -2));
    how.mask = call.reshape(call.expand(in.mask, sizes), {-1, 1, sizes[lead.size()], sizes[lead.size() + 1]});
  }
  std::vector<Int> shape = lead;
  shape.push_back(call.size_of(in.q, -2));
  shape.push_back(call.size_of(in.v, -1));
  return call.reshape(attend(call, as_one(in.q), as_one(in.k), as_one(in.v), how), shape);
}

// [batch, heads, positions, size] with the same batch; key heads may be fewer.
bool fits_heads(Call& call, const Operands& in) {
  if (call.rank(in.q) != 4 || call.rank(in.k) != 4 || call.rank(in.v) != 4) return false;
  const Extents q = call.shape(in.q), k = call.shape(in.k), v = call.shape(in.v);
  const bool numbers = q[1] && k[1] && v[1] && *k[1] > 0;
  return numbers && q[0] == k[0] && k[0] == v[0] && k[1] == v[1] && *q[1] % *k[1] == 0;
}

Value attention(Call& call, Operands in, bool causal, std::optional<double> scale) {
  const DType dtype = call.dtype(in.q);
  Attending how{in.mask, causal, scale};
  if (scale == 0.0) {  // to the graph's operator a scale of 0 is none
    in.q = call.node("Mul", {in.q, call.literal(0, dtype)});
    how.scale = 1;
  }
  if (present(how.mask) && call.dtype(how.mask) != DType::boolean)
    how.mask = in.mask = call.cast(how.mask, dtype);
  if (fits_rows(call, in)) {
    if (present(how.mask) && call.rank(how.mask) == 3) how.mask = call.unsqueeze(how.mask, {1});
    return attend(call, in.q, in.k, in.v, how);
  }
  if (!fits_heads(call, in)) return attend_over_one_axis(call, in, how);
  how.heads = call.extent(in.q, 1);
  how.key_heads = call.extent(in.k, 1);
  const Value rows = attend(call, rows_of(call, in.q), rows_of(call, in.k), rows_of(call, in.v), how);
  return heads_of(call, rows, how.heads);
}

Operands operands(Call& call, int mask) {
  return {widened(call, 0), widened(call, 1), widened(call, 2), call.tensor(mask)};
}

std::optional<double> scale_argument(Call& call, int argument) {
  return call.has(argument) ? std::optional(call.real(argument)) : std::nullopt;
}

void refuse_dropout(Call& call, int argument) {
  if (call.real(argument) != 0) call.unsupported("dropout in training; call eval() on the module");
}

// (query, key, value, mask, dropout_p, is_causal, scale, enable_gqa)
Results scaled_dot_product(Call& call) {
  refuse_dropout(call, 4);
  return attention(call, operands(call, 3), call.flag(5), scale_argument(call, 6));
}

// [batch, heads, positions, size] with a key head for each query head.
Value keys_of_heads(Call& call, const Operands& in) {
  if (!fits_heads(call, in) || call.extent(in.q, 1) == call.extent(in.k, 1)) return in.k;
  const int64_t key_heads = call.extent(in.k, 1), shared = call.extent(in.q, 1) / key_heads;
  const Int batch = call.size_of(in.k, 0), keys = call.size_of(in.k, 2), size = call.size_of(in.k, 3);
  const Value apart = call.expand(call.unsqueeze(in.k, {2}), {batch, key_heads, shared, keys, size});
  return call.reshape(apart, {batch, key_heads * shared, keys, size});
}

// Of each query's scores. One that sees no key has 0, as PyTorch's CPU says.
Value logsumexp_of_scores(Call& call, const Operands& in, bool causal, std::optional<double> scale) {
  const Term q(call, in.q);
  const Term factor = scale ? q.like(*scale) : 1 / sqrt(Lanes(q, {-1}, false).count());
  Term scores = q.with("MatMul", call.swap_axes(keys_of_heads(call, in), -2, -1)) * factor;
  if (causal) {
    const Term visible = positions(call, scores, -2) >= positions(call, scores, -1);
    scores = select(visible, scores, -std::numeric_limits<double>::infinity());
  }
  if (present(in.mask)) scores = scores + Term(call, in.mask).cast(scores.dtype());
  const Term sums = logsumexp(Lanes(scores, {-1}, false));
  return select(sums == -std::numeric_limits<double>::infinity(), 0, sums);
}

// What the CPU's tracer makes of it: (query, key, value, dropout_p, is_causal, attn_mask, scale). A graph
// drops what computes the second result where nobody uses it.
Results flash(Call& call) {
  refuse_dropout(call, 3);
  const Operands in = operands(call, 5);
  const bool causal = call.flag(4);
  const std::optional<double> scale = scale_argument(call, 6);
  return {attention(call, in, causal, scale), logsumexp_of_scores(call, in, causal, scale)};
}

// ---- with projections

struct Projections {
  int64_t heads;
  Value qkv_weight, qkv_bias, out_weight, out_bias;
};

// True where a key is hidden, in one of three shapes: [queries, keys], [batch, keys], [batch, heads, queries,
// keys]; floats are not 0 there. True in the result: may be seen.
Value seen(Call& call, int mask, int type) {
  if (!call.has(mask)) return kAbsent;
  const Value visible = call.node("Not", {call.cast(call.tensor(mask), DType::boolean)});
  if (!call.has(type)) call.unsupported("a mask without mask_type; it has to be 0, 1 or 2");
  return call.integer(type) == 1 ? call.unsqueeze(visible, {1, 2}) : visible;
}

Value third(Call& call, Value packed, int64_t which) {
  const int64_t width = call.extent(packed, 0) / 3;
  return call.slice(packed, 0, which * width, (which + 1) * width);
}

// q, k and v of one tensor, side by side; of three, one after the other.
std::vector<Value> project(Call& call, const std::vector<Value>& x, const Projections& p) {
  if (x[0].id == x[1].id && x[1].id == x[2].id) return {linear(call, x[0], p.qkv_weight, p.qkv_bias)};
  std::vector<Value> projected;
  for (int64_t i = 0; i < 3; ++i) {
    projected.push_back(
        linear(call, x[static_cast<size_t>(i)], third(call, p.qkv_weight, i), third(call, p.qkv_bias, i)));
  }
  return projected;
}

Value self_attention(Call& call, const std::vector<Value>& x, const Projections& p, Value mask) {
  std::vector<Value> qkv = project(call, x, p);
  qkv.resize(3, kAbsent);
  Attending how;
  how.mask = mask;
  how.heads = how.key_heads = p.heads;
  return linear(call, attend(call, qkv[0], qkv[1], qkv[2], how), p.out_weight, p.out_bias);
}

// The same with its probabilities, [batch, heads, queries, keys].
Results weighed_attention(Call& call, const std::vector<Value>& x, const Projections& p, Value mask) {
  std::vector<Value> qkv = project(call, x, p);
  if (qkv.size() == 1) qkv = call.nodes("Split", {qkv[0]}, 3, {{"axis", int64_t{2}}});
  for (Value& each : qkv) each = heads_of(call, each, p.heads);
  const DType dtype = call.dtype(qkv[0]);
  const double scale = 1 / std::sqrt(static_cast<double>(call.extent(qkv[0], 3)));
  Value scores = call.node("MatMul", {qkv[0], call.swap_axes(qkv[1], 2, 3)});
  scores = call.node("Mul", {scores, call.literal(scale, dtype)});
  if (present(mask)) {
    const Value hidden = call.literal(-std::numeric_limits<double>::infinity(), dtype);
    scores = call.node("Where", {mask, scores, hidden});
  }
  const Value weights = call.node("Softmax", {scores}, {{"axis", int64_t{-1}}});
  const Value y = rows_of(call, call.node("MatMul", {weights, qkv[2]}));
  return {linear(call, y, p.out_weight, p.out_bias), weights};
}

// (query, key, value, embed_dim, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, need_weights,
// average_attn_weights, mask_type)
Results multi_head_attention(Call& call) {
  const Projections p{call.integer(4), widened(call, 5), widened(call, 6), widened(call, 7),
                      widened(call, 8)};
  std::vector<Value> x;
  for (int i = 0; i < 3; ++i) {
    const Value given = call.tensor(i);
    const bool first = i == 0 || given.id != call.tensor(0).id;
    x.push_back(first ? widened(call, i) : x[0]);
  }
  const Value mask = seen(call, 9, 12);
  if (!call.flag(10))
    return {self_attention(call, x, p, mask), call.constant(Tensor::zeros(DType::f32, {0}))};
  Results both = weighed_attention(call, x, p, mask);
  if (call.flag(11)) both[1] = reduce(call, "ReduceMean", both[1], {1}, false);
  return both;
}

// ---- a whole layer

// (src, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu, norm_first, eps,
// norm_weight_1, norm_bias_1, norm_weight_2, norm_bias_2, ffn_weight_1, ffn_bias_1, ffn_weight_2, ffn_bias_2,
// mask, mask_type)
Results encoder_layer(Call& call) {
  const Value x = widened(call, 0);
  const Projections p{call.integer(2), widened(call, 3), widened(call, 4), widened(call, 5),
                      widened(call, 6)};
  const Value mask = seen(call, 18, 19);
  const int last = call.rank(x) - 1;
  const auto norm = [&](Value value, int weight) {
    return layer_norm(call, value, last, widened(call, weight), widened(call, weight + 1), call.real(9));
  };
  const auto attended = [&](Value value) { return self_attention(call, {value, value, value}, p, mask); };
  const auto fed_forward = [&](Value value) {
    const Value inner = linear(call, value, widened(call, 14), widened(call, 15));
    const Value active = call.flag(7) ? call.node("Gelu", {inner}, {{"approximate", std::string("none")}})
                                      : call.node("Relu", {inner});
    return linear(call, active, widened(call, 16), widened(call, 17));
  };
  const auto add = [&](Value a, Value b) { return call.node("Add", {a, b}); };
  if (call.flag(8)) {
    const Value y = add(x, attended(norm(x, 10)));
    return add(y, fed_forward(norm(y, 12)));
  }
  const Value y = norm(add(x, attended(x)), 10);
  return norm(add(y, fed_forward(y)), 12);
}

}  // namespace

Value attend(Call& call, Value q, Value k, Value v, const Attending& how) {
  std::vector<Value> inputs = {q, k, v};
  if (present(how.mask)) inputs.push_back(how.mask);
  return call.node("Attention", inputs,
                   {{"num_heads", how.heads},
                    {"kv_heads", how.key_heads},
                    {"scale", how.scale.value_or(0)},
                    {"causal", int64_t{how.causal}},
                    {"packed", int64_t{!present(k)}}});
}

std::span<const Entry> attention_entries() {
  static constexpr Entry kEntries[] = {
      {"aten::scaled_dot_product_attention", scaled_dot_product},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", flash},
      {"aten::_native_multi_head_attention", multi_head_attention},
      {"aten::_transformer_encoder_layer_fwd", encoder_layer},
  };
  return kEntries;
}

}  // namespace heddle::torch_backend
