// Operators that run graphs: If, Loop.
#include "ir/ops/control.h"

#include <algorithm>
#include <cstring>

#include "ir/ops/rules.h"
#include "ir/ops/tables.h"

namespace heddle::ir {

namespace {

constexpr std::string_view kBranchNames[] = {"else_branch", "then_branch"};
constexpr std::string_view kRefusalNames[] = {"else_refusal", "then_refusal"};

Status check_single(const Value& value, std::string_view argument, DType dtype) {
  if (value.type.dtype != dtype)
    return Status::invalid(argument, " is ", value.type, "; it has to be ", dtype);
  if (value.type.rank() != 0) return check_shape(value, argument, {1});
  return {};
}

Result<std::vector<Value>> branch_types(const Node& node, bool taken, Operands in) {
  const Branch branch = branch_of(node, taken);
  if (branch.graph == nullptr) return refused(branch, taken);
  auto types = infer(*branch.graph, in.subspan(1));
  if (!types.ok()) return types.status().with_context(kBranchNames[taken]);
  if (types->size() != node.outputs.size()) {
    return Status::invalid(kBranchNames[taken], " gives ", types->size(), " values; the node has ",
                           node.outputs.size(), " outputs");
  }
  return types;
}

// What holds whichever branch is taken. Where extents differ, the condition decides: not known yet.
Inferred joined_branches(const std::vector<Value>& yes, const std::vector<Value>& no) {
  std::vector<Value> out;
  for (size_t i = 0; i < yes.size(); ++i) {
    const TensorType& a = yes[i].type;
    const TensorType& b = no[i].type;
    if (a.dtype != b.dtype || a.rank() != b.rank()) {
      return Status::unsupported("output ", i, " is ", a, " by its then branch and ", b,
                                 " by its else branch; type and rank have to be the same");
    }
    Shape shape = a.shape;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (!(shape[axis] == b.shape[axis])) shape[axis] = Dim::unknown();
    }
    const bool same = yes[i].contents.has_value() && yes[i].contents == no[i].contents;
    out.push_back(typed(a.dtype, std::move(shape), same ? yes[i].contents : std::nullopt));
  }
  return out;
}

Inferred infer_if(const Node& node, Operands in) {
  HEDDLE_TRY(check_single(*in[0], "condition", DType::kBool));
  if (const auto known = known_number(*in[0])) return branch_types(node, *known != 0, in);
  auto yes = branch_types(node, true, in);
  auto no = branch_types(node, false, in);
  // A branch that cannot be typed is one that these shapes never take, or it is refused when it is taken.
  if (!yes.ok()) return no.ok() ? std::move(no) : std::move(yes);
  if (!no.ok()) return yes;
  return joined_branches(*yes, *no);
}

Status reference_if(const Node& node, DataIn in, DataOut out) {
  const bool taken = in[0]->get(0) != 0;
  const Branch branch = branch_of(node, taken);
  if (branch.graph == nullptr) return refused(branch, taken);
  std::vector<Tensor> captured;
  for (size_t i = 1; i < in.size(); ++i) captured.push_back(*in[i]);
  HEDDLE_TRY_ASSIGN(std::vector<Tensor> made, evaluate(*branch.graph, captured));
  for (size_t i = 0; i < out.size(); ++i) out[i] = std::move(made[i]);
  return {};
}

Value single(DType dtype, std::optional<int64_t> number) {
  if (!number) return typed(dtype, {});
  return typed(dtype, {}, std::vector<Dim>{*number});
}

// The body's outputs for iteration `number` (any, when not given), the condition being true.
Inferred infer_body(const Node& loop, std::optional<int64_t> number, const std::vector<Value>& carried,
                    Operands in) {
  const Value iteration = single(DType::kI64, number);
  const Value condition = single(DType::kBool, 1);
  std::vector<const Value*> given = {&iteration, &condition};
  for (const Value& value : carried) given.push_back(&value);
  for (size_t i = 2 + carried.size(); i < in.size(); ++i) given.push_back(in[i]);
  auto made = infer(*loop_form(loop).body, given);
  if (!made.ok()) return made.status().with_context("body");
  HEDDLE_TRY(check_single((*made)[0], "the condition that the body gives", DType::kBool));
  for (size_t k = 0; k < carried.size(); ++k) {
    const TensorType& before = carried[k].type;
    const TensorType& after = (*made)[1 + k].type;
    if (before.dtype == after.dtype && before.rank() == after.rank()) continue;
    return Status::unsupported("carried value ", k, " is ", before, " before an iteration and ", after,
                               " after it; type and rank have to be the same");
  }
  return made;
}

std::vector<Value> first_carried(const Node& loop, Operands in) {
  std::vector<Value> carried;
  for (size_t k = 0; k < loop_form(loop).carried; ++k) carried.push_back(*in[2 + k]);
  return carried;
}

Value stacked(const Value& value, Dim count) {
  Shape shape = value.type.shape;
  shape.insert(shape.begin(), std::move(count));
  return typed(value.type.dtype, std::move(shape));
}

// Iteration by iteration. Nothing when the condition is not known after one of them.
Result<std::optional<std::vector<Value>>> infer_counted(const Node& loop, int64_t trips, Operands in) {
  const LoopForm form = loop_form(loop);
  std::vector<Value> carried = first_carried(loop, in);
  HEDDLE_TRY_ASSIGN(std::vector<Value> made,
                    infer_body(loop, trips > 0 ? std::optional<int64_t>(0) : std::nullopt, carried, in));
  int64_t done = 0;
  for (bool goes_on = true; goes_on && done < trips; ++done) {
    if (done > 0) {
      HEDDLE_TRY_ASSIGN(made, infer_body(loop, done, carried, in));
    }
    for (size_t k = 0; k < form.carried; ++k) carried[k] = made[1 + k];
    if (done + 1 == trips) continue;  // whatever the condition
    const auto condition = known_number(made[0]);
    if (!condition) return std::optional<std::vector<Value>>();
    goes_on = *condition != 0;
  }
  std::vector<Value> out = carried;
  for (size_t k = 0; k < form.scans; ++k) out.push_back(stacked(made[1 + form.carried + k], done));
  return std::optional(std::move(out));
}

// Carried values whose extents change from one iteration to the next get unknown ones.
Inferred infer_any_count(const Node& loop, const Dim& trips, Operands in) {
  const LoopForm form = loop_form(loop);
  std::vector<Value> carried = first_carried(loop, in);
  std::vector<std::vector<char>> open;
  for (Value& value : carried) {
    value.constant.reset();
    value.contents.reset();
    open.emplace_back(value.type.rank(), 0);
  }
  std::vector<Value> made;
  for (bool changed = true; changed;) {
    changed = false;
    HEDDLE_TRY_ASSIGN(made, infer_body(loop, std::nullopt, carried, in));
    for (size_t k = 0; k < carried.size(); ++k) {
      for (size_t axis = 0; axis < open[k].size(); ++axis) {
        if (open[k][axis] != 0 || carried[k].type.shape[axis] == made[1 + k].type.shape[axis]) continue;
        carried[k].type.shape[axis] = Dim::unknown();
        open[k][axis] = 1;
        changed = true;
      }
    }
  }
  const bool all_run = known_number(made[0]) == 1;
  std::vector<Value> out = std::move(carried);
  for (size_t k = 0; k < form.scans; ++k)
    out.push_back(stacked(made[1 + form.carried + k], all_run ? trips : Dim::unknown()));
  return out;
}

Inferred infer_loop(const Node& node, Operands in) {
  HEDDLE_TRY(check_loop(node));
  HEDDLE_TRY(check_single(*in[0], "trip count", DType::kI64));
  HEDDLE_TRY(check_single(*in[1], "condition", DType::kBool));
  const auto condition = known_number(*in[1]);
  const auto trips = in[0]->integers();
  std::optional<Dim> count;
  if (condition == 0) count = Dim(0);
  if (condition == 1 && trips && trips->size() == 1)
    count = trips->front().non_negative() ? trips->front() : Dim::max(trips->front(), 0);
  if (count && count->is_static() && count->value() <= kMaxUnrolled) {
    HEDDLE_TRY_ASSIGN(auto exact, infer_counted(node, count->value(), in));
    if (exact) return std::move(*exact);
    count.reset();
  }
  return infer_any_count(node, count.value_or(Dim::unknown()), in);
}

Status reference_loop(const Node& node, DataIn in, DataOut out) {
  const LoopForm form = loop_form(node);
  std::vector<Tensor> state = {Tensor::scalar(DType::kI64, 0), in[1]->reshaped({})};
  for (size_t i = 2; i < in.size(); ++i) state.push_back(*in[i]);
  const int64_t trips = in[0]->get_i64(0);
  int64_t done = 0;
  for (; done < trips && state[1].get(0) != 0; ++done) {
    state[0] = Tensor::of<int64_t>(DType::kI64, {}, std::span<const int64_t>(&done, 1));
    HEDDLE_TRY_ASSIGN(std::vector<Tensor> made, evaluate(*form.body, state));
    state[1] = made[0].reshaped({});
    for (size_t k = 0; k < form.carried; ++k) state[2 + k] = made[1 + k];
    for (size_t k = 0; k < form.scans; ++k) {
      const Tensor& part = made[1 + form.carried + k];
      Tensor& whole = out[form.carried + k];
      if (whole.extents()[0] <= done || whole.bytes() != part.bytes() * whole.extents()[0]) {
        return Status::unsupported("iteration ", done, " adds ", part.type(), " to ", whole.type(),
                                   "; shapes must follow from the shapes of the inputs");
      }
      if (part.bytes() == 0) continue;
      std::memcpy(static_cast<std::byte*>(whole.mutable_data()) + done * part.bytes(), part.data(),
                  static_cast<size_t>(part.bytes()));
    }
  }
  for (size_t k = 0; k < form.scans; ++k) {
    if (out[form.carried + k].extents()[0] == done) continue;
    return Status::unsupported("runs ", done, " of ", out[form.carried + k].extents()[0],
                               " iterations; the count must not depend on data");
  }
  for (size_t k = 0; k < form.carried; ++k) out[k] = state[2 + k];
  return {};
}

}  // namespace

std::optional<int64_t> known_number(const Value& value) {
  const auto numbers = value.integers();
  if (!numbers || numbers->size() != 1 || !numbers->front().is_static()) return std::nullopt;
  return numbers->front().value();
}

Branch branch_of(const Node& node, bool taken) {
  return {node.attributes.graph(kBranchNames[taken]), node.attributes.str(kRefusalNames[taken])};
}

Status refused(const Branch& branch, bool taken) {
  return Status::unsupported("the condition chooses ", kBranchNames[taken], ", which cannot be compiled: ",
                             branch.refusal.empty() ? "it is not there" : branch.refusal);
}

LoopForm loop_form(const Node& loop) {
  const Graph* body = loop.attributes.graph("body").get();
  const auto carried = static_cast<size_t>(loop.attributes.i64("carried"));
  return {body, carried, loop.outputs.size() - carried};
}

Status check_loop(const Node& loop) {
  const auto body = loop.attributes.graph("body");
  const int64_t carried = loop.attributes.i64("carried");
  if (body == nullptr) return Status::invalid("attribute 'body' is empty; it has to be a graph");
  if (carried < 0 || static_cast<size_t>(carried) > loop.outputs.size() ||
      static_cast<size_t>(carried) + 2 > loop.inputs.size()) {
    return Status::invalid("carries ", carried, " values with ", loop.inputs.size(), " inputs and ",
                           loop.outputs.size(), " outputs");
  }
  if (body->inputs.size() != loop.inputs.size() || body->outputs.size() != loop.outputs.size() + 1) {
    return Status::invalid("the body takes ", body->inputs.size(), " values and gives ", body->outputs.size(),
                           "; it has to take ", loop.inputs.size(), " and give ", loop.outputs.size() + 1);
  }
  return {};
}

Result<Iteration> any_iteration(const Node& loop, std::span<const Value* const> in) {
  std::vector<Value> carried = first_carried(loop, in);
  for (Value& value : carried) value.constant.reset(), value.contents.reset();
  HEDDLE_TRY_ASSIGN(std::vector<Value> made, infer_body(loop, std::nullopt, carried, in));
  bool steady = true;
  for (size_t k = 0; k < carried.size(); ++k) steady = steady && carried[k].type == made[1 + k].type;
  const bool goes_on = known_number(made[0]) == 1;
  return Iteration{std::move(made), goes_on, steady};
}

std::vector<OpDef> control_ops() {
  using enum AttributeKind;
  return {
      {"If",
       1,
       -1,
       1,
       -1,
       {{"then_branch", kGraph},
        {"else_branch", kGraph},
        {"then_refusal", kString},
        {"else_refusal", kString}},
       infer_if,
       reference_if},
      {"Loop", 2, -1, 1, -1, {{"body", kGraph, true}, {"carried", kInt, true}}, infer_loop, reference_loop},
  };
}

}  // namespace heddle::ir
