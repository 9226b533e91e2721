// The part of GraphReader that reads operators which hold graphs: If, Loop, Scan.
#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "ir/ops/control.h"
#include "onnx/graph_reader.h"
#include "onnx/names.h"
#include "onnx/node_graphs.h"

namespace heddle::onnx {

using ir::ValueId;

namespace {

constexpr size_t kMaxSplits = 8;  // conditions assumed at once, each of which reads the graph twice
constexpr int kMaxLoops = 3;      // loops around loops: their shape rules multiply

Result<std::vector<int64_t>> ints_of(const proto::NodeProto& node, std::string_view name, size_t count) {
  std::vector<int64_t> numbers(count, 0);
  for (const proto::AttributeProto& attribute : node.attribute()) {
    if (attribute.name() != name) continue;
    if (static_cast<size_t>(attribute.ints_size()) != count) {
      return Status::invalid(describe(node), ": attribute '", name, "' has ", attribute.ints_size(),
                             " numbers; it has to have ", count);
    }
    numbers.assign(attribute.ints().begin(), attribute.ints().end());
  }
  return numbers;
}

ir::Tensor whole_number(int64_t n) {
  return ir::Tensor::of<int64_t>(ir::DType::kI64, {}, std::span<const int64_t>(&n, 1));
}

bool same_kind(const ir::TensorType& a, const ir::TensorType& b) {
  return a.dtype == b.dtype && a.rank() == b.rank();
}

bool may_be_same(const ir::TensorType& a, const ir::TensorType& b) {
  if (!same_kind(a, b)) return false;
  for (size_t axis = 0; axis < a.rank(); ++axis) {
    if (!ir::Dim::may_equal(a.shape[axis], b.shape[axis])) return false;
  }
  return true;
}

// The first output of whose types `agree` is false; nothing when there is none.
std::optional<size_t> first_other(const ir::Graph& a, const ir::Graph& b,
                                  bool (*agree)(const ir::TensorType&, const ir::TensorType&)) {
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    if (!agree(a.type(a.outputs[i]), b.type(b.outputs[i]))) return i;
  }
  return std::nullopt;
}

// What an If is made of; one of the two may have failed.
ir::Attributes branch_attributes(Result<Nested>& yes, Result<Nested>& no) {
  ir::Attributes attributes;
  const auto add = [&](Result<Nested>& branch, const std::string& name) {
    if (branch.ok()) {
      attributes.set(name + "_branch", std::make_shared<const ir::Graph>(std::move(branch->graph)));
    } else {
      attributes.set(name + "_refusal", branch.status().message());
    }
  };
  add(yes, "then");
  add(no, "else");
  return attributes;
}

}  // namespace

Status GraphReader::convert_control(const proto::NodeProto& node, Scope& scope) {
  if (node.op_type() == "If") return convert_if(node, scope);
  if (loops_ >= kMaxLoops) {
    return Status::unsupported(describe(node), ": it is a loop inside ", loops_, " others; at most ",
                               kMaxLoops, " lie in each other");
  }
  ++loops_;
  const Status converted = node.op_type() == "Loop" ? convert_loop(node, scope) : convert_scan(node, scope);
  --loops_;
  return converted;
}

Result<Nested> GraphReader::read_nested(const proto::GraphProto& graph, const Scope& around,
                                        const Prologue& prologue) {
  if (++depth_ > limits_.nesting) {
    --depth_;
    return Status::invalid("graphs lie in graphs more than ", limits_.nesting, " deep");
  }
  Body body(printable(graph.name()), around.body);
  Scope scope = inner_scope(around, &body);
  const auto read = [&]() -> Result<Nested> {
    HEDDLE_TRY(read_initializers(graph, scope));
    std::vector<ValueId> first;
    HEDDLE_TRY(prologue(scope, first));
    HEDDLE_TRY_ASSIGN(std::vector<ValueId> outputs, read_body(graph, scope));
    outputs.insert(outputs.begin(), first.begin(), first.end());
    for (ValueId id : outputs) body.builder().output(id);
    const bool data = body.depends_on_data(outputs.front());
    HEDDLE_TRY_ASSIGN(ir::Graph made, body.builder().take());
    return Nested{std::move(made), body.captured(), data};
  };
  Result<Nested> made = read();
  --depth_;
  return made;
}

Status GraphReader::convert_if(const proto::NodeProto& node, Scope& scope) {
  HEDDLE_TRY(check_attributes(node, {"then_branch", "else_branch"}));
  HEDDLE_TRY_ASSIGN(const proto::GraphProto* then_graph, graph_of(node, "then_branch"));
  HEDDLE_TRY_ASSIGN(const proto::GraphProto* else_graph, graph_of(node, "else_branch"));
  for (const proto::GraphProto* graph : {then_graph, else_graph}) {
    if (graph->input_size() == 0 && graph->output_size() == node.output_size()) continue;
    return Status::invalid(describe(node), ": a branch takes ", graph->input_size(), " inputs and gives ",
                           graph->output_size(), " outputs; it has to take none and give ",
                           node.output_size());
  }
  HEDDLE_TRY_ASSIGN(const auto inputs, operands(node, scope));
  if (inputs.size() != 1 || inputs[0] == ir::kNoValue) {
    return Status::invalid(describe(node), ": it has ", inputs.size(), " inputs; it takes 1, the condition");
  }
  const auto assumed = assumed_.find({&node, scope.prefix});
  const auto known = assumed != assumed_.end() ? std::optional<int64_t>(assumed->second)
                                               : ir::known_number(scope.body->value(inputs[0]));
  if (known) return inline_branch(node, *known != 0 ? *then_graph : *else_graph, scope);

  const Prologue nothing = [](Scope&, std::vector<ValueId>&) { return Status(); };
  Result<Nested> yes = read_nested(*then_graph, scope, nothing);
  Result<Nested> no = read_nested(*else_graph, scope, nothing);
  const auto failed = [&](const Status& status, const char* branch) {
    return status.with_context(text(describe(node), ": ", branch));
  };
  const bool data = scope.body->depends_on_data(inputs[0]);
  if (!yes.ok() && (data || !no.ok())) return failed(yes.status(), "then_branch");
  if (!no.ok() && data) return failed(no.status(), "else_branch");
  if (const auto other = data ? first_other(yes->graph, no->graph, may_be_same) : std::nullopt) {
    return Status::unsupported(describe(node), ": its condition depends on data, and output ", *other, " is ",
                               yes->graph.type(yes->graph.outputs[*other]), " by then_branch and ",
                               no->graph.type(no->graph.outputs[*other]),
                               " by else_branch; they have to be the same");
  }
  if (yes.ok() && no.ok() && first_other(yes->graph, no->graph, same_kind)) {
    split_ = Split{{&node, scope.prefix}, inputs[0]};
    return Status::unsupported(describe(node), ": the branches give tensors of other types or ranks");
  }
  HEDDLE_TRY_ASSIGN(const std::vector<ValueId> made,
                    make_if(text(scope.prefix, node_name(node)), inputs[0], yes, no, *scope.body));
  bind_outputs(node, made, scope);
  return {};
}

Result<std::vector<ValueId>> GraphReader::make_if(const std::string& name, ValueId condition,
                                                  Result<Nested>& yes, Result<Nested>& no, Body& body) {
  std::vector<ValueId> inputs = yes.ok() ? yes->captured : no->captured;
  if (yes.ok() && no.ok()) inputs = share_inputs(*yes, *no, body.builder().graph());
  inputs.insert(inputs.begin(), condition);
  const size_t outputs = (yes.ok() ? yes : no)->graph.outputs.size();
  return body.builder().nodes("If", std::move(inputs), outputs, branch_attributes(yes, no), name);
}

Status GraphReader::inline_branch(const proto::NodeProto& node, const proto::GraphProto& branch,
                                  Scope& scope) {
  Scope inner = inner_scope(scope, scope.body);
  const auto convert = [&]() -> Status {
    HEDDLE_TRY(read_initializers(branch, inner));
    return convert_nodes(branch.node(), inner);
  };
  if (const Status converted = convert(); !converted.ok()) return converted.with_context(describe(node));
  for (int i = 0; i < node.output_size(); ++i) {
    const Found found = find(branch.output(i).name(), inner);
    if (found.binding == nullptr) {
      return Status::invalid(describe(node), ": output ", in_quotes(branch.output(i).name()),
                             " of the branch is made by no node");
    }
    if (node.output(i).empty()) continue;
    Binding binding = *found.binding;
    if (binding.id != ir::kNoValue) binding.id = scope.body->import(binding.id, *found.scope->body);
    scope.values[node.output(i)] = std::move(binding);
  }
  return {};
}

// The nodes of a graph cannot be typed before the condition is known: they are read once for each answer, and
// the graph becomes one If.
Result<std::vector<ValueId>> GraphReader::read_split(const proto::GraphProto& graph, Scope& given,
                                                     const Split& split) {
  if (assumed_.size() >= kMaxSplits) {
    return Status::unsupported("the types of the graph's values hang on more than ", kMaxSplits,
                               " conditions that are not known while loading");
  }
  const auto variant = [&](bool answer) -> Result<Nested> {
    assumed_[split.key] = answer;
    Body body(printable(graph.name()), given.body);
    Scope scope = inner_scope(given, &body);
    auto outputs = read_body(graph, scope);
    assumed_.erase(split.key);
    HEDDLE_TRY(outputs.status());
    for (ValueId id : *outputs) body.builder().output(id);
    HEDDLE_TRY_ASSIGN(ir::Graph made, body.builder().take());
    return Nested{std::move(made), body.captured(), true};
  };
  Result<Nested> yes = variant(true);
  Result<Nested> no = variant(false);
  if (!yes.ok() && !no.ok()) return yes.status();
  return make_if(text(split.key.second, node_name(*split.key.first)), split.condition, yes, no, *given.body);
}

Status GraphReader::read_loop(const proto::NodeProto& node, const proto::GraphProto& graph, Scope& scope,
                              const Loop& loop, std::vector<ValueId>& made) {
  std::vector<ir::TensorType> types;
  std::vector<std::vector<char>> open;
  for (ValueId id : loop.carried) {
    types.push_back(scope.body->value(id).type);
    open.emplace_back(types.back().rank(), 0);
  }
  // Extents that change from one iteration to the next become unknown, until all that are left stay.
  for (;;) {
    const Prologue prologue = [&](Scope& inner, std::vector<ValueId>& first) -> Status {
      const ValueId number = inner.body->counter("iteration", {ir::DType::kI64, {}});
      const ValueId go = inner.body->counter("condition", {ir::DType::kBool, {}});
      std::vector<ValueId> state = {number, go};
      for (size_t k = 0; k < types.size(); ++k) {
        state.push_back(inner.body->builder().input(text("carried", k), types[k]));
      }
      return loop.bind(inner, state, first);
    };
    auto body = read_nested(graph, scope, prologue);
    if (!body.ok()) return body.status().with_context(text(describe(node), ": body"));
    bool changed = false;
    for (size_t k = 0; k < types.size(); ++k) {
      const ir::TensorType& after = body->graph.type(body->graph.outputs[1 + k]);
      for (size_t axis = 0; axis < types[k].rank() && axis < after.rank(); ++axis) {
        if (open[k][axis] != 0 || types[k].shape[axis] == after.shape[axis]) continue;
        types[k].shape[axis] = ir::Dim::unknown();
        open[k][axis] = 1;
        changed = true;
      }
    }
    if (changed) continue;
    if (body->first_depends_on_data) {
      return Status::unsupported(describe(node), ": the condition that its body gives depends on data; ",
                                 "it must follow from the shapes of the inputs");
    }
    std::vector<ValueId> inputs = {loop.trips, loop.condition};
    inputs.insert(inputs.end(), loop.carried.begin(), loop.carried.end());
    inputs.insert(inputs.end(), body->captured.begin(), body->captured.end());
    const size_t outputs = body->graph.outputs.size() - 1;
    ir::Attributes attributes;
    attributes.set("body", std::make_shared<const ir::Graph>(std::move(body->graph)));
    attributes.set("carried", static_cast<int64_t>(types.size()));
    HEDDLE_TRY_ASSIGN(made,
                      scope.body->builder().nodes("Loop", std::move(inputs), outputs, std::move(attributes),
                                                  text(scope.prefix, node_name(node))));
    return {};
  }
}

Status GraphReader::bind_input(const proto::GraphProto& body, int i, ValueId id, Scope& inner) {
  const std::string& name = body.input(i).name();
  if (name.empty()) return Status::invalid("input ", i, " has no name");
  if (inner.values.emplace(name, Binding{id, {}}).second) return {};
  return Status::invalid("input ", in_quotes(name), " occurs twice; every value is made once");
}

Status GraphReader::convert_loop(const proto::NodeProto& node, Scope& scope) {
  HEDDLE_TRY(check_attributes(node, {"body"}));
  HEDDLE_TRY_ASSIGN(const proto::GraphProto* graph, graph_of(node, "body"));
  HEDDLE_TRY_ASSIGN(auto inputs, operands(node, scope));
  inputs.resize(std::max<size_t>(inputs.size(), 2), ir::kNoValue);
  Loop loop;
  loop.carried.assign(inputs.begin() + 2, inputs.end());
  const auto count = static_cast<int>(loop.carried.size());
  if (graph->input_size() != count + 2 || graph->output_size() != node.output_size() + 1 ||
      node.output_size() < count || std::count(loop.carried.begin(), loop.carried.end(), ir::kNoValue) != 0) {
    return Status::invalid(describe(node), ": it carries ", count, " values and has ", node.output_size(),
                           " outputs, and its body takes ", graph->input_size(), " and gives ",
                           graph->output_size(), "; it has to take ", count + 2, " and give ",
                           node.output_size() + 1);
  }
  loop.trips = inputs[0];
  if (loop.trips == ir::kNoValue || scope.body->depends_on_data(loop.trips)) {
    return Status::unsupported(describe(node), ": its trip count ",
                               loop.trips == ir::kNoValue ? "is left out" : "depends on data",
                               "; it must follow from the shapes of the inputs");
  }
  loop.condition = inputs[1] != ir::kNoValue
                       ? inputs[1]
                       : scope.body->builder().constant(ir::Tensor::scalar(ir::DType::kBool, 1));
  if (scope.body->depends_on_data(loop.condition)) {
    return Status::unsupported(describe(node), ": its condition depends on data; ",
                               "it must follow from the shapes of the inputs");
  }
  loop.bind = [&](Scope& inner, const std::vector<ValueId>& state, std::vector<ValueId>&) -> Status {
    for (int i = 0; i < graph->input_size(); ++i) {
      HEDDLE_TRY(bind_input(*graph, i, state[static_cast<size_t>(i)], inner));
    }
    return {};
  };
  std::vector<ValueId> made;
  HEDDLE_TRY(read_loop(node, *graph, scope, loop, made));
  bind_outputs(node, made, scope);
  return {};
}

Result<GraphReader::ScanForm> GraphReader::scan_form(const proto::NodeProto& node,
                                                     const proto::GraphProto& graph, const Scope& scope) {
  HEDDLE_TRY(check_attributes(node, {"body", "num_scan_inputs", "scan_input_axes", "scan_input_directions",
                                     "scan_output_axes", "scan_output_directions"}));
  HEDDLE_TRY_ASSIGN(const auto inputs, operands(node, scope));
  int64_t scanned = 0;
  for (const proto::AttributeProto& attribute : node.attribute()) {
    if (attribute.name() == "num_scan_inputs") scanned = attribute.i();
  }
  const auto count = static_cast<int64_t>(inputs.size());
  if (scanned < 1 || scanned > count || graph.input_size() != count ||
      graph.output_size() != node.output_size() || graph.output_size() < count - scanned ||
      std::count(inputs.begin(), inputs.end(), ir::kNoValue) != 0) {
    return Status::invalid(describe(node), ": it has ", count, " inputs, ", scanned, " of them scanned, and ",
                           node.output_size(), " outputs; its body takes ", graph.input_size(), " and gives ",
                           graph.output_size());
  }
  ScanForm form;
  const auto states = inputs.begin() + (count - scanned);
  form.states.assign(inputs.begin(), states);
  form.scanned.assign(states, inputs.end());
  const size_t stacked = static_cast<size_t>(node.output_size()) - form.states.size();
  HEDDLE_TRY_ASSIGN(form.input_axes, ints_of(node, "scan_input_axes", form.scanned.size()));
  HEDDLE_TRY_ASSIGN(form.input_directions, ints_of(node, "scan_input_directions", form.scanned.size()));
  HEDDLE_TRY_ASSIGN(form.output_axes, ints_of(node, "scan_output_axes", stacked));
  HEDDLE_TRY_ASSIGN(form.output_directions, ints_of(node, "scan_output_directions", stacked));
  for (const auto* directions : {&form.input_directions, &form.output_directions}) {
    for (int64_t direction : *directions) {
      if (direction == 0 || direction == 1) continue;
      return Status::invalid(describe(node), ": a direction is ", direction, "; it has to be 0 or 1");
    }
  }
  const auto type = [&](size_t i) -> const ir::TensorType& {
    return scope.body->value(form.scanned[i]).type;
  };
  for (size_t i = 0; i < form.scanned.size(); ++i) {
    auto axis = ir::normalize_axis(form.input_axes[i], type(i).rank());
    if (!axis.ok()) return axis.status().with_context(text(describe(node), ": scan input ", i));
    form.input_axes[i] = static_cast<int64_t>(*axis);
    const ir::Dim &extent = type(i).shape[*axis],
                  &first = type(0).shape[static_cast<size_t>(form.input_axes[0])];
    if (!ir::Dim::may_equal(extent, first)) {
      return Status::invalid(describe(node), ": scan input ", i, " has ", extent,
                             " elements and scan input 0 ", first, "; they have to have as many");
    }
  }
  return form;
}

// The longest decides: an input that turns out to be shorter has no element for the last iterations.
Result<ValueId> GraphReader::scan_trips(const ScanForm& form, const std::string& name, ir::Builder& builder) {
  const auto extent = [&](size_t i) -> const ir::Dim& {
    return builder.value(form.scanned[i]).type.shape[static_cast<size_t>(form.input_axes[i])];
  };
  ValueId trips = ir::kNoValue;
  for (size_t i = 0; i < form.scanned.size(); ++i) {
    if (i > 0 && extent(i) == extent(0)) continue;
    HEDDLE_TRY_ASSIGN(const ValueId shape, builder.node("Shape", {form.scanned[i]}, {}, name + "/shape"));
    const ValueId axis = builder.constant(whole_number(form.input_axes[i]));
    HEDDLE_TRY_ASSIGN(const ValueId count, builder.node("Gather", {shape, axis}, {}, name + "/count"));
    if (i > 0) {
      HEDDLE_TRY_ASSIGN(trips, builder.node("Max", {trips, count}, {}, name + "/longest"));
    } else {
      trips = count;
    }
  }
  return trips;
}

// Iteration i reads element i (from the end: count - 1 - i) of every scan input.
Status GraphReader::convert_scan(const proto::NodeProto& node, Scope& scope) {
  HEDDLE_TRY_ASSIGN(const proto::GraphProto* graph, graph_of(node, "body"));
  HEDDLE_TRY_ASSIGN(const ScanForm form, scan_form(node, *graph, scope));
  const std::string name = text(scope.prefix, node_name(node));
  ir::Builder& builder = scope.body->builder();
  Loop loop;
  loop.carried = form.states;
  loop.condition = builder.constant(ir::Tensor::scalar(ir::DType::kBool, 1));
  HEDDLE_TRY_ASSIGN(loop.trips, scan_trips(form, name, builder));
  const ValueId one = builder.constant(whole_number(1));
  HEDDLE_TRY_ASSIGN(const ValueId last, builder.node("Sub", {loop.trips, one}, {}, name + "/last"));
  loop.bind = [&](Scope& inner, const std::vector<ValueId>& state, std::vector<ValueId>& first) -> Status {
    Body& body = *inner.body;
    const size_t states = form.states.size();
    for (size_t k = 0; k < states; ++k) {
      HEDDLE_TRY(bind_input(*graph, static_cast<int>(k), state[2 + k], inner));
    }
    for (size_t i = 0; i < form.scanned.size(); ++i) {
      ValueId at = state[0];
      if (form.input_directions[i] != 0) {
        const ValueId end = body.import(last, *scope.body);
        HEDDLE_TRY_ASSIGN(at, body.builder().node("Sub", {end, at}, {}, name + "/from_end"));
      }
      const ValueId whole = body.import(form.scanned[i], *scope.body);
      HEDDLE_TRY_ASSIGN(
          const ValueId element,
          body.builder().node("Gather", {whole, at}, {{"axis", form.input_axes[i]}}, name + "/element"));
      HEDDLE_TRY(bind_input(*graph, static_cast<int>(states + i), element, inner));
    }
    HEDDLE_TRY_ASSIGN(const ValueId go, body.builder().node("Identity", {state[1]}, {}, name + "/go"));
    first.push_back(go);
    return {};
  };
  std::vector<ValueId> made;
  HEDDLE_TRY(read_loop(node, *graph, scope, loop, made));
  for (size_t k = form.states.size(); k < made.size(); ++k) {
    const size_t i = k - form.states.size();
    HEDDLE_TRY_ASSIGN(made[k], turn_stacked(node, made[k], form.output_axes[i],
                                            form.output_directions[i] != 0, name, *scope.body));
  }
  bind_outputs(node, made, scope);
  return {};
}

// Stacked along axis 0, first to last, as a Scan wants it.
Result<ValueId> GraphReader::turn_stacked(const proto::NodeProto& node, ValueId id, int64_t to, bool reversed,
                                          const std::string& name, Body& body) {
  const size_t rank = body.value(id).type.rank();
  auto axis = ir::normalize_axis(to, rank);
  if (!axis.ok()) return axis.status().with_context(text(describe(node), ": scan_output_axes"));
  ir::Builder& builder = body.builder();
  if (reversed) {
    const auto list = [&](int64_t n) { return builder.constant(ir::Tensor::of_i64({n})); };
    HEDDLE_TRY_ASSIGN(id, builder.node("Slice", {id, list(-1), list(INT64_MIN), list(0), list(-1)}, {},
                                       name + "/reversed"));
  }
  if (*axis == 0) return id;
  std::vector<int64_t> perm;
  for (size_t i = 1; i < rank; ++i) perm.push_back(static_cast<int64_t>(i));
  perm.insert(perm.begin() + static_cast<std::ptrdiff_t>(*axis), 0);
  return builder.node("Transpose", {id}, {{"perm", perm}}, name + "/stacked");
}

}  // namespace heddle::onnx
