// LinearAttention: a state per example and head that each position decays, corrects, writes and reads.
//
// Inputs q [B, T, Hq*D], k [B, T, H*D], v [B, T, H*Dv], past [B, H, D, Dv], decay [B, T, H] or [B, T, H*D],
// beta [B, T, H] or [B, T, 1]; outputs y [B, T, Hq*Dv] and the last state [B, H, D, Dv]. Query head h reads
// the state of head h / (Hq / H).
#include <cmath>

#include "ir/ops/rules.h"
#include "ir/ops/tables.h"
#include "ir/ops/walk.h"

namespace heddle::ir {

namespace {

enum LinearAttentionInput : size_t { kQ, kK, kV, kPast, kDecay, kBeta };

struct Form {
  int64_t query_heads, heads;
  bool gated, corrected;
};

Result<Form> form_of(const Node& node) {
  const std::string rule = node.attributes.str("update_rule", "gated_delta");
  if (rule != "linear" && rule != "gated" && rule != "delta" && rule != "gated_delta") {
    return Status::invalid("attribute 'update_rule' is '", rule,
                           "'; it has to be linear, gated, delta or gated_delta");
  }
  const int64_t query = node.attributes.i64("q_num_heads"), heads = node.attributes.i64("kv_num_heads");
  if (heads < 1 || query < 1 || query % heads != 0) {
    return Status::invalid("attribute 'kv_num_heads' is ", heads, " and 'q_num_heads' ", query,
                           "; both have to be 1 or more, the second a multiple of the first");
  }
  return Form{query, heads, rule == "gated" || rule == "gated_delta",
              rule == "delta" || rule == "gated_delta"};
}

Result<Dim> head_size(const Value& value, std::string_view name, int64_t heads) {
  const Dim& last = value.type.shape.back();
  if (!last.is_static())
    return Status::unsupported(name, " is ", value.type, "; its last extent has to be a number");
  if (last.value() % heads != 0) {
    return Status::invalid(name, " is ", value.type, "; its last extent has to be a multiple of ", heads,
                           " heads");
  }
  return Dim(last.value() / heads);
}

// Given exactly when the update rule has it; its last extent is one of two.
Status check_factor(Operands in, size_t i, std::string_view name, bool wanted, Dim few, Dim many) {
  const Value* factor = optional_input(in, i);
  if ((factor != nullptr) != wanted) {
    return Status::invalid(name, wanted ? " is left out" : " is given", "; attribute 'update_rule' ",
                           wanted ? "has it" : "has none");
  }
  if (factor == nullptr) return {};
  HEDDLE_TRY(same_dtype(*in[kQ], "query", *factor, name));
  HEDDLE_TRY(check_rank(*factor, name, 3, 3));
  const Shape& q = in[kQ]->type.shape;
  const Dim& last = factor->type.shape[2];
  return check_shape(*factor, name, {q[0], q[1], last == many ? many : few});
}

Inferred infer_linear_attention(const Node& node, Operands in) {
  HEDDLE_TRY_ASSIGN(const Form form, form_of(node));
  HEDDLE_TRY(accept(*in[kQ], "query", Accept::kFloat));
  const std::string_view names[] = {"query", "key", "value"};
  for (const size_t i : {kQ, kK, kV}) {
    HEDDLE_TRY(same_dtype(*in[kQ], "query", *in[i], names[i]));
    HEDDLE_TRY(check_rank(*in[i], names[i], 3, 3));
  }
  const Shape& q = in[kQ]->type.shape;
  HEDDLE_TRY_ASSIGN(const Dim size, head_size(*in[kQ], "query", form.query_heads));
  HEDDLE_TRY_ASSIGN(const Dim value_size, head_size(*in[kV], "value", form.heads));
  const Dim heads(form.heads);
  HEDDLE_TRY(check_shape(*in[kK], "key", {q[0], q[1], heads * size}));
  HEDDLE_TRY(check_shape(*in[kV], "value", {q[0], q[1], heads * value_size}));
  HEDDLE_TRY(check_factor(in, kDecay, "decay", form.gated, heads, heads * size));
  HEDDLE_TRY(check_factor(in, kBeta, "beta", form.corrected, heads, 1));
  const Shape state = {q[0], heads, size, value_size};
  DType state_dtype = in[kQ]->type.dtype;
  if (const Value* past = optional_input(in, kPast)) {
    HEDDLE_TRY(accept(*past, "past_state", Accept::kFloat));
    HEDDLE_TRY(check_shape(*past, "past_state", state));
    state_dtype = past->type.dtype;
  }
  return std::vector<Value>{typed(in[kQ]->type.dtype, {q[0], q[1], Dim(form.query_heads) * value_size}),
                            typed(state_dtype, state)};
}

// One head's way through the positions of one example.
class Head {
 public:
  Head(const Form& form, DataIn in, DataOut out, double scale)
      : form_(form),
        in_(in),
        out_(out),
        scale_(scale),
        positions_(in[kQ]->extents()[1]),
        size_(in[kQ]->extents()[2] / form.query_heads),
        value_size_(in[kV]->extents()[2] / form.heads) {}

  void run(int64_t example, int64_t head) {
    const int64_t first = (example * form_.heads + head) * size_ * value_size_;
    state_.assign(static_cast<size_t>(size_ * value_size_), 0);
    if (const Tensor* past = optional_input(in_, kPast)) {
      for (size_t i = 0; i < state_.size(); ++i) state_[i] = past->get(first + static_cast<int64_t>(i));
    }
    for (int64_t t = 0; t < positions_; ++t) step(example * positions_ + t, head);
    for (size_t i = 0; i < state_.size(); ++i) out_[1].set(first + static_cast<int64_t>(i), state_[i]);
  }

 private:
  double& state(int64_t d, int64_t e) { return state_[static_cast<size_t>(d * value_size_ + e)]; }

  void step(int64_t row, int64_t head) {
    const auto key = [&](int64_t d) { return in_[kK]->get((row * form_.heads + head) * size_ + d); };
    if (form_.gated) {
      const bool per_element = in_[kDecay]->extents()[2] != form_.heads;
      for (int64_t d = 0; d < size_; ++d) {
        const int64_t of_head = row * form_.heads + head;
        const double kept = std::exp(in_[kDecay]->get(per_element ? of_head * size_ + d : of_head));
        for (int64_t e = 0; e < value_size_; ++e) state(d, e) *= kept;
      }
    }
    for (int64_t e = 0; e < value_size_; ++e) {
      double value = in_[kV]->get((row * form_.heads + head) * value_size_ + e);
      if (form_.corrected) {
        const int64_t rates = in_[kBeta]->extents()[2];
        for (int64_t d = 0; d < size_; ++d) value -= state(d, e) * key(d);
        value *= in_[kBeta]->get(row * rates + (rates == 1 ? 0 : head));
      }
      for (int64_t d = 0; d < size_; ++d) state(d, e) += key(d) * value;
    }
    const int64_t readers = form_.query_heads / form_.heads;
    for (int64_t q = head * readers; q < (head + 1) * readers; ++q) {
      for (int64_t e = 0; e < value_size_; ++e) {
        double sum = 0;
        for (int64_t d = 0; d < size_; ++d)
          sum += in_[kQ]->get((row * form_.query_heads + q) * size_ + d) * state(d, e);
        out_[0].set((row * form_.query_heads + q) * value_size_ + e, scale_ * sum);
      }
    }
  }

  const Form& form_;
  DataIn in_;
  DataOut out_;
  double scale_;
  int64_t positions_, size_, value_size_;
  std::vector<double> state_;
};

Status reference_linear_attention(const Node& node, DataIn in, DataOut out) {
  HEDDLE_TRY_ASSIGN(const Form form, form_of(node));
  const double given = node.attributes.f64("scale");
  const int64_t size = in[kQ]->extents()[2] / form.query_heads;
  Head work(form, in, out, given != 0 ? given : 1 / std::sqrt(static_cast<double>(size)));
  for (int64_t example = 0; example < in[kQ]->extents()[0]; ++example) {
    for (int64_t head = 0; head < form.heads; ++head) work.run(example, head);
  }
  return {};
}

}  // namespace

std::vector<OpDef> linear_attention_ops() {
  using enum AttributeKind;
  return {{"LinearAttention",
           3,
           6,
           2,
           2,
           {{"q_num_heads", kInt, true},
            {"kv_num_heads", kInt, true},
            {"scale", kFloat},
            {"update_rule", kString}},
           infer_linear_attention,
           reference_linear_attention}};
}

}  // namespace heddle::ir
