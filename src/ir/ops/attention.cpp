// Attention over heads that are slices of the last axis.
//
// Inputs q [B, Sq, H*D], k [B, Sk, Hk*D], v [B, Sk, Hk*Dv], mask; or packed=1 and one input [B, S, (H +
// 2*Hk)*D] that holds q, k and v one after the other. Query head h reads key head h / (H / Hk). causal=1 lets
// position i attend to positions up to i. A row that may attend to nothing (all false, all -inf) gives zeros.
#include <cmath>

#include "ir/ops/rules.h"
#include "ir/ops/tables.h"
#include "ir/ops/walk.h"

namespace heddle::ir {

namespace {

struct Heads {
  int64_t query;
  int64_t key;
  int64_t in_packed() const { return query + 2 * key; }
};

Result<Heads> heads_of(const Node& node) {
  const int64_t query = node.attributes.i64("num_heads");
  const int64_t key = node.attributes.i64("kv_heads", query);
  constexpr int64_t kMost = 1 << 20;
  if (query < 1 || query > kMost)
    return Status::invalid("attribute 'num_heads' is ", query, "; it has to be 1 to ", kMost);
  if (key < 1 || query % key != 0) {
    return Status::invalid("attribute 'kv_heads' is ", key, "; it has to divide num_heads=", query);
  }
  return Heads{query, key};
}

// The extent of one head, when the last axis holds `heads` of them.
Result<Dim> head_extent(const Value& value, std::string_view name, int64_t heads) {
  const Dim& last = value.type.shape.back();
  if (!last.is_static() || last.value() % heads == 0) return Dim::floor_div(last, heads);
  return Status::invalid(name, " is ", value.type, "; its last axis has to be a multiple of ", heads,
                         " heads");
}

struct Types {
  Dim batch, queries, keys, extent, value_extent;
};

Result<Types> packed_types(Operands in, const Heads& heads) {
  if (optional_input(in, 1) != nullptr || optional_input(in, 2) != nullptr) {
    return Status::invalid("k and v are given beside packed=1; they have to be left out");
  }
  HEDDLE_TRY_ASSIGN(const Dim extent, head_extent(*in[0], "q", heads.in_packed()));
  const Shape& q = in[0]->type.shape;
  return Types{q[0], q[1], q[1], extent, extent};
}

Result<Types> separate_types(Operands in, const Heads& heads) {
  const Value* k = optional_input(in, 1);
  const Value* v = optional_input(in, 2);
  if (k == nullptr || v == nullptr)
    return Status::invalid("k or v is left out; only packed=1 goes without them");
  HEDDLE_TRY(same_dtype(*in[0], "q", *k, "k"));
  HEDDLE_TRY(same_dtype(*in[0], "q", *v, "v"));
  HEDDLE_TRY(check_rank(*k, "k", 3, 3));
  HEDDLE_TRY(check_rank(*v, "v", 3, 3));
  const Shape& q = in[0]->type.shape;
  HEDDLE_TRY_ASSIGN(const Dim extent, head_extent(*in[0], "q", heads.query));
  HEDDLE_TRY_ASSIGN(const Dim value_extent, head_extent(*v, "v", heads.key));
  HEDDLE_TRY(check_shape(*k, "k", {q[0], k->type.shape[1], extent * Dim(heads.key)}));
  HEDDLE_TRY(check_shape(*v, "v", {q[0], k->type.shape[1], v->type.shape[2]}));
  return Types{q[0], q[1], k->type.shape[1], extent, value_extent};
}

Inferred infer_attention(const Node& node, Operands in) {
  HEDDLE_TRY_ASSIGN(const Heads heads, heads_of(node));
  HEDDLE_TRY(accept(*in[0], "q", Accept::kFloat));
  HEDDLE_TRY(check_rank(*in[0], "q", 3, 3));
  const bool packed = node.attributes.i64("packed") != 0;
  HEDDLE_TRY_ASSIGN(const Types types, packed ? packed_types(in, heads) : separate_types(in, heads));
  if (const Value* mask = optional_input(in, 3)) {
    if (mask->type.dtype != DType::kBool) HEDDLE_TRY(accept(*mask, "mask", Accept::kFloat));
    const Shape scores = {types.batch, Dim(heads.query), types.queries, types.keys};
    const Result<Shape> joined = broadcast(scores, mask->type.shape);
    if (!joined.ok() || !may_equal(joined.value(), scores)) {
      return Status::invalid("mask is ", mask->type, "; it has to broadcast to ", to_string(scores));
    }
  }
  return one(in[0]->type.dtype, {types.batch, types.queries, types.value_extent * Dim(heads.query)});
}

// Where one head's vectors lie: element e of position s in batch b is
// data[(b * positions + s) * row + offset + e].
struct Part {
  std::vector<double> data;
  int64_t positions;
  int64_t row;
  int64_t offset;
  double at(int64_t b, int64_t s, int64_t begin, int64_t e) const {
    return data[static_cast<size_t>((b * positions + s) * row + offset + begin + e)];
  }
};

Part part(const Tensor& t, int64_t offset) { return {doubles(t), t.extents()[1], t.extents()[2], offset}; }

struct Scores {
  const Tensor* mask;
  Strides strides;
  bool causal;
  // What is added to a score; -infinity where the mask forbids.
  double bias(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (causal && j > i) return -INFINITY;
    if (mask == nullptr) return 0;
    const double value = mask->get(strides.at(Index{b, h, i, j}));
    return mask->dtype() != DType::kBool ? value : value != 0 ? 0 : -INFINITY;
  }
};

// Softmax in place; all -infinity gives zeros.
void softmax(std::vector<double>& row) {
  double greatest = -INFINITY;
  for (double x : row) greatest = std::isnan(x) || x > greatest ? x : greatest;
  double sum = 0;
  for (double& x : row) sum += x = greatest == -INFINITY ? 0 : std::exp(x - greatest);
  for (double& x : row) x = sum == 0 ? 0 : x / sum;
}

Status reference_attention(const Node& node, DataIn in, DataOut out) {
  HEDDLE_TRY_ASSIGN(const Heads heads, heads_of(node));
  const bool packed = node.attributes.i64("packed") != 0;
  const int64_t extent = in[0]->extents()[2] / (packed ? heads.in_packed() : heads.query);
  const Part q = part(*in[0], 0);
  const Part k = packed ? part(*in[0], heads.query * extent) : part(*in[1], 0);
  const Part v = packed ? part(*in[0], (heads.query + heads.key) * extent) : part(*in[2], 0);
  const int64_t value_extent = packed ? extent : in[2]->extents()[2] / heads.key;
  const double given = node.attributes.f64("scale");
  const double scale = given != 0 ? given : 1 / std::sqrt(static_cast<double>(extent));
  const Tensor* mask = optional_input(in, 3);
  const Scores scores{mask, Strides(mask == nullptr ? Extents() : mask->extents(), 4),
                      node.attributes.i64("causal") != 0};
  const Extents rows = {in[0]->extents()[0], heads.query, q.positions};
  walk(rows, [&](const Index& index, int64_t) {
    const auto [b, h, i] = std::array{index[0], index[1], index[2]};
    const int64_t shared = h / (heads.query / heads.key);
    std::vector<double> weights(static_cast<size_t>(k.positions));
    for (int64_t j = 0; j < k.positions; ++j) {
      double dot = 0;
      for (int64_t e = 0; e < extent; ++e) dot += q.at(b, i, h * extent, e) * k.at(b, j, shared * extent, e);
      weights[static_cast<size_t>(j)] = dot * scale + scores.bias(b, h, i, j);
    }
    softmax(weights);
    for (int64_t e = 0; e < value_extent; ++e) {
      double sum = 0;
      for (int64_t j = 0; j < k.positions; ++j) {
        sum += weights[static_cast<size_t>(j)] * v.at(b, j, shared * value_extent, e);
      }
      out[0].set(((b * q.positions + i) * heads.query + h) * value_extent + e, sum);
    }
  });
  return {};
}

}  // namespace

std::vector<OpDef> attention_ops() {
  using enum AttributeKind;
  return {
      {"Attention",
       1,
       4,
       1,
       1,
       {{"num_heads", kInt, true}, {"kv_heads", kInt}, {"scale", kFloat}, {"causal", kInt}, {"packed", kInt}},
       infer_attention,
       reference_attention}};
}

}  // namespace heddle::ir
