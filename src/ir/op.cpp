#include "ir/op.h"

#include <algorithm>
#include <array>
#include <deque>
#include <iterator>
#include <map>

#include "base/made_once.h"
#include "ir/ops/rules.h"
#include "ir/ops/tables.h"

namespace heddle::ir {

namespace {

constexpr std::string_view kKindNames[] = {"an int", "a float",  "a string", "ints",
                                           "floats", "a tensor", "a graph"};

// Sorted by name.
std::vector<OpDef> gather_tables() {
  std::vector<OpDef> all;
  for (std::vector<OpDef>& family :
       std::array{unary_ops(),          binary_ops(),      chain_ops(),
                  shape_ops(),          movement_ops(),    slicing_ops(),
                  indexing_ops(),       reduce_ops(),      order_ops(),
                  linear_ops(),         convolution_ops(), pooling_ops(),
                  normalization_ops(),  attention_ops(),   convolution_transpose_ops(),
                  integer_ops(),        recurrent_ops(),   trigonometry_ops(),
                  bitwise_ops(),        scatter_ops(),     resize_ops(),
                  sampling_ops(),       control_ops(),     linear_attention_ops(),
                  grouped_product_ops()}) {
    std::move(family.begin(), family.end(), std::back_inserter(all));
  }
  std::sort(all.begin(), all.end(), [](const OpDef& a, const OpDef& b) { return a.name < b.name; });
  return all;
}

std::vector<const OpDef*> addresses_of(const std::vector<OpDef>& table) {
  std::vector<const OpDef*> all;
  for (const OpDef& op : table) all.push_back(&op);
  return all;
}

Status check_count(std::string_view what, size_t count, int least, int most) {
  const int n = static_cast<int>(count);
  if (n >= least && (most < 0 || n <= most)) return {};
  if (most < 0) return Status::invalid("has ", n, ' ', what, "; it takes at least ", least);
  if (least == most) return Status::invalid("has ", n, ' ', what, "; it takes ", least);
  return Status::invalid("has ", n, ' ', what, "; it takes ", least, " to ", most);
}

Status check_attributes(const Node& node) {
  for (const auto& attribute : node.attributes) {
    const std::string& name = attribute.first;
    const auto& value = attribute.second;
    const auto& known = node.op->attributes;
    const auto entry =
        std::find_if(known.begin(), known.end(), [&](const AttributeDef& a) { return a.name == name; });
    if (entry == known.end()) {
      std::string names;
      for (const AttributeDef& a : known) names += text(names.empty() ? "" : ", ", a.name);
      return Status::invalid("attribute '", name, "' is not known; it takes ",
                             names.empty() ? "none" : names);
    }
    if (value.index() != static_cast<size_t>(entry->kind)) {
      return Status::invalid("attribute '", name, "' is ", kKindNames[value.index()], "; it has to be ",
                             kKindNames[static_cast<size_t>(entry->kind)]);
    }
  }
  for (const AttributeDef& entry : node.op->attributes) {
    if (entry.required && !node.attributes.has(entry.name)) {
      return Status::invalid("attribute '", entry.name, "' is missing; it has to be ",
                             kKindNames[static_cast<size_t>(entry.kind)]);
    }
  }
  return {};
}

// Extents that no tensor can have, found before anything is allocated. Symbols count as 1.
Status check_size(const TensorType& type) {
  if (type.rank() > kMaxRank) {
    return Status::unsupported("", type, " has rank ", type.rank(), "; tensors have at most ", kMaxRank,
                               " axes");
  }
  std::vector<int64_t> numbers;
  for (const Dim& dim : type.shape) numbers.push_back(dim.is_static() ? dim.value() : 1);
  if (Status size = status_of(checked_elements(numbers, type.dtype)); !size.ok()) {
    return type.is_static() ? size : size.with_context(to_string(type));
  }
  return {};
}

Result<std::vector<Value>> infer_checked(const Node& node, std::span<const Value* const> in) {
  HEDDLE_TRY(check_form(node));
  if (in.size() != node.inputs.size()) {
    return Status::internal("is given ", in.size(), " operands for ", node.inputs.size(), " inputs");
  }
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i] == nullptr) continue;
    if (Status fits = check_size(in[i]->type); !fits.ok()) return fits.with_context(text("input ", i));
  }
  HEDDLE_TRY_ASSIGN(std::vector<Value> out, node.op->infer(node, in));
  if (out.size() != node.outputs.size()) {
    return Status::internal("the shape rule gives ", out.size(), " outputs of ", node.outputs.size());
  }
  for (size_t i = 0; i < out.size(); ++i) {
    if (Status fits = check_size(out[i].type); !fits.ok()) return fits.with_context(text("output ", i));
  }
  return out;
}

Result<std::vector<Tensor>> evaluate_checked(const Node& node, std::span<const Tensor* const> in) {
  HEDDLE_TRY_ASSIGN(const std::vector<Value> types, infer_checked(node, KnownOperands(in).operands()));
  std::vector<Tensor> out;
  for (const Value& value : types) {
    const std::optional<Extents> extents = value.type.extents();
    if (!extents.has_value()) return Status::unsupported("the shape ", value.type, " depends on data");
    HEDDLE_TRY_ASSIGN(Tensor tensor, Tensor::make(value.type.dtype, *extents));
    out.push_back(std::move(tensor));
  }
  HEDDLE_TRY(node.op->reference(node, in, out));
  return out;
}

// The inputs fit the declared types; equal symbols stand for equal numbers.
Status check_inputs(const Graph& graph, std::span<const Tensor> inputs) {
  if (inputs.size() != graph.inputs.size()) {
    return Status::invalid("has ", graph.inputs.size(), " inputs; ", inputs.size(), " are given");
  }
  std::map<std::string, int64_t> bound;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value& declared = graph.values[graph.inputs[i]];
    const TensorType given = inputs[i].type();
    bool fits = given.dtype == declared.type.dtype && given.rank() == declared.type.rank();
    for (size_t axis = 0; fits && axis < given.rank(); ++axis) {
      const Dim& dim = declared.type.shape[axis];
      const int64_t number = given.shape[axis].value();
      const int64_t wanted =
          dim.is_static() ? dim.value() : bound.emplace(to_string(dim), number).first->second;
      if (wanted == number) continue;
      return Status::invalid("input '", declared.name, "' is ", given, "; axis ", axis, " of ", declared.type,
                             " has to be ", wanted);
    }
    if (!fits)
      return Status::invalid("input '", declared.name, "' is ", given, "; it has to be ", declared.type);
  }
  return {};
}

}  // namespace

const OpDef* find_op(std::string_view name) {
  const std::span<const OpDef* const> all = all_ops();
  const auto found = std::lower_bound(all.begin(), all.end(), name,
                                      [](const OpDef* op, std::string_view n) { return op->name < n; });
  return found != all.end() && (*found)->name == name ? *found : nullptr;
}

std::span<const OpDef* const> all_ops() {
  static constinit MadeOnce<const std::vector<OpDef>> table;
  static constinit MadeOnce<const std::vector<const OpDef*>> all;
  return all.get([] { return addresses_of(table.get(gather_tables)); });
}

Status check_form(const Node& node) {
  if (node.op == nullptr) return Status::invalid("has no operator");
  const OpDef& op = *node.op;
  HEDDLE_TRY(check_count("inputs", node.inputs.size(), op.inputs_min, op.inputs_max));
  HEDDLE_TRY(check_count("outputs", node.outputs.size(), op.outputs_min, op.outputs_max));
  const size_t needed = op.inputs_max < 0 ? node.inputs.size() : static_cast<size_t>(op.inputs_min);
  for (size_t i = 0; i < needed; ++i) {
    if (node.inputs[i] == kNoValue) return Status::invalid("input ", i, " is left out; it is required");
  }
  return check_attributes(node);
}

Result<std::vector<Value>> infer(const Node& node, std::span<const Value* const> in) {
  Result<std::vector<Value>> out = infer_checked(node, in);
  if (!out.ok()) return out.status().with_context(node.describe());
  return out;
}

Result<std::vector<Value>> infer(const Graph& graph, std::span<const Value* const> in) {
  if (in.size() != graph.inputs.size())
    return Status::invalid("has ", graph.inputs.size(), " inputs; ", in.size(), " are given");
  std::vector<const Value*> known(graph.values.size());
  for (size_t id = 0; id < known.size(); ++id) known[id] = &graph.values[id];
  for (size_t i = 0; i < in.size(); ++i) {
    const TensorType& declared = graph.type(graph.inputs[i]);
    if (in[i]->type.dtype != declared.dtype || in[i]->type.rank() != declared.rank())
      return Status::invalid("input ", i, " is ", in[i]->type, "; it has to be ", declared);
    known[graph.inputs[i]] = in[i];
  }
  std::deque<Value> made;
  for (const Node& node : graph.nodes) {
    std::vector<const Value*> operands;
    for (ValueId id : node.inputs) operands.push_back(id == kNoValue ? nullptr : known[id]);
    HEDDLE_TRY_ASSIGN(std::vector<Value> out, infer(node, operands));
    for (size_t i = 0; i < out.size(); ++i) known[node.outputs[i]] = &made.emplace_back(std::move(out[i]));
  }
  std::vector<Value> outputs;
  for (ValueId id : graph.outputs)
    outputs.push_back({{}, known[id]->type, std::nullopt, known[id]->integers()});
  return outputs;
}

Result<std::vector<Tensor>> evaluate(const Node& node, std::span<const Tensor* const> in) {
  Result<std::vector<Tensor>> out = evaluate_checked(node, in);
  if (!out.ok()) return out.status().with_context(node.describe());
  return out;
}

Result<std::vector<Tensor>> evaluate(const Graph& graph, std::span<const Tensor> inputs) {
  HEDDLE_TRY(validate(graph));
  if (Status fits = check_inputs(graph, inputs); !fits.ok()) {
    return fits.with_context(text("graph '", graph.name, "'"));
  }
  std::vector<Tensor> values(graph.values.size());
  for (size_t id = 0; id < values.size(); ++id) {
    if (graph.values[id].constant.has_value()) values[id] = *graph.values[id].constant;
  }
  for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs[i]] = inputs[i];
  for (const Node& node : graph.nodes) {
    std::vector<const Tensor*> in;
    for (ValueId id : node.inputs) in.push_back(id == kNoValue ? nullptr : &values[id]);
    HEDDLE_TRY_ASSIGN(std::vector<Tensor> out, evaluate(node, in));
    for (size_t i = 0; i < out.size(); ++i) values[node.outputs[i]] = std::move(out[i]);
  }
  std::vector<Tensor> outputs;
  for (ValueId id : graph.outputs) outputs.push_back(values[id]);
  return outputs;
}

}  // namespace heddle::ir
