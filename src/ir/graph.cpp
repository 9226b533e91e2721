#include "ir/graph.h"

#include <algorithm>

#include "ir/op.h"

namespace heddle::ir {

namespace {

std::string value_name(const Graph& graph, ValueId id) {
  const std::string& name = graph.values[id].name;
  return name.empty() ? text("value ", id) : text("value '", name, "'");
}

Status check_id(const Graph& graph, ValueId id, std::string_view where) {
  if (id < graph.values.size()) return {};
  return Status::invalid(where, " refers to value ", id, " of ", graph.values.size());
}

Status check_node(const Graph& graph, const Node& node, std::vector<char>& made) {
  HEDDLE_TRY(check_form(node));
  for (const auto& [name, attribute] : node.attributes) {
    const auto* body = std::get_if<std::shared_ptr<const Graph>>(&attribute);
    if (body == nullptr) continue;
    if (*body == nullptr) return Status::invalid("attribute '", name, "' holds no graph");
    HEDDLE_TRY(validate(**body));
  }
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId id = node.inputs[i];
    if (id == kNoValue) continue;
    HEDDLE_TRY(check_id(graph, id, text("input ", i)));
    if (made[id] == 0) {
      return Status::invalid("reads ", value_name(graph, id),
                             ", which nothing before it makes; nodes are in topological order");
    }
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId id = node.outputs[i];
    HEDDLE_TRY(check_id(graph, id, text("output ", i)));
    if (made[id] != 0) {
      return Status::invalid("makes ", value_name(graph, id),
                             ", which is made already; every value is made once");
    }
    made[id] = 1;
  }
  return {};
}

Status check_sources(const Graph& graph, std::vector<char>& made) {
  for (ValueId id = 0; id < graph.values.size(); ++id) {
    const Value& value = graph.values[id];
    if (value.constant.has_value()) {
      made[id] = 1;
      if (value.type != value.constant->type()) {
        return Status::invalid("constant ", value_name(graph, id), " is ", value.constant->type(),
                               " but is declared as ", value.type);
      }
    }
    if (value.type.rank() > kMaxRank) {
      return Status::unsupported(value_name(graph, id), " has rank ", value.type.rank(), "; at most ",
                                 kMaxRank);
    }
  }
  for (ValueId id : graph.inputs) {
    HEDDLE_TRY(check_id(graph, id, "an input of the graph"));
    if (made[id] != 0) {
      return Status::invalid("input ", value_name(graph, id),
                             " is a constant or listed twice; every value is made once");
    }
    made[id] = 1;
  }
  return {};
}

}  // namespace

bool Attributes::has(std::string_view name) const { return find(name) != nullptr; }

const Attribute* Attributes::find(std::string_view name) const {
  const auto found = map_.find(name);
  return found == map_.end() ? nullptr : &found->second;
}

void Attributes::erase(std::string_view name) {
  if (const auto found = map_.find(name); found != map_.end()) map_.erase(found);
}

namespace {

template <class T>
T attribute_or(const Attributes& attributes, std::string_view name, T otherwise) {
  const Attribute* attribute = attributes.find(name);
  const T* value = attribute == nullptr ? nullptr : std::get_if<T>(attribute);
  return value == nullptr ? std::move(otherwise) : *value;
}

}  // namespace

int64_t Attributes::i64(std::string_view name, int64_t otherwise) const {
  return attribute_or<int64_t>(*this, name, otherwise);
}
double Attributes::f64(std::string_view name, double otherwise) const {
  return attribute_or<double>(*this, name, otherwise);
}
std::string Attributes::str(std::string_view name, std::string_view otherwise) const {
  return attribute_or<std::string>(*this, name, std::string(otherwise));
}
std::vector<int64_t> Attributes::ints(std::string_view name, const std::vector<int64_t>& otherwise) const {
  return attribute_or<std::vector<int64_t>>(*this, name, otherwise);
}
std::vector<double> Attributes::floats(std::string_view name, const std::vector<double>& otherwise) const {
  return attribute_or<std::vector<double>>(*this, name, otherwise);
}
std::shared_ptr<const Graph> Attributes::graph(std::string_view name) const {
  return attribute_or<std::shared_ptr<const Graph>>(*this, name, nullptr);
}

std::optional<std::vector<Dim>> Value::integers() const {
  if (!constant.has_value()) return contents;
  if (is_float(constant->dtype()) || constant->elements() > static_cast<int64_t>(kMaxContents))
    return std::nullopt;
  const std::vector<int64_t> numbers = constant->to_i64();
  const auto negative = [](int64_t number) { return number < 0; };
  if (constant->dtype() == DType::kU64 && std::any_of(numbers.begin(), numbers.end(), negative))
    return std::nullopt;
  return std::vector<Dim>(numbers.begin(), numbers.end());
}

bool Node::is(std::string_view op_name) const { return op != nullptr && op->name == op_name; }

std::string Node::describe() const {
  const std::string_view kind = op == nullptr ? std::string_view("no operator") : op->name;
  return name.empty() ? text("node (", kind, ')') : text("node '", name, "' (", kind, ')');
}

ValueId Graph::add_value(Value value) {
  values.push_back(std::move(value));
  return static_cast<ValueId>(values.size() - 1);
}

ValueId Graph::add_constant(std::string constant_name, Tensor tensor) {
  TensorType type = tensor.type();
  return add_value({std::move(constant_name), std::move(type), std::move(tensor), std::nullopt});
}

std::vector<int> Graph::producers() const {
  std::vector<int> made_by(values.size(), -1);
  for (size_t n = 0; n < nodes.size(); ++n) {
    for (ValueId id : nodes[n].outputs) made_by[id] = static_cast<int>(n);
  }
  return made_by;
}

std::vector<std::vector<int>> Graph::consumers() const {
  std::vector<std::vector<int>> readers(values.size());
  for (size_t n = 0; n < nodes.size(); ++n) {
    for (ValueId id : nodes[n].inputs) {
      if (id != kNoValue && (readers[id].empty() || readers[id].back() != static_cast<int>(n))) {
        readers[id].push_back(static_cast<int>(n));
      }
    }
  }
  for (ValueId id : outputs) readers[id].push_back(-1);
  return readers;
}

void each_constant(const Graph& graph, const std::function<void(const Tensor&)>& visit) {
  for (const Value& value : graph.values) {
    if (value.is_constant()) visit(*value.constant);
  }
  for (const Node& node : graph.nodes) {
    for (const auto& entry : node.attributes) {
      const auto* body = std::get_if<std::shared_ptr<const Graph>>(&entry.second);
      if (body != nullptr && *body != nullptr) each_constant(**body, visit);
    }
  }
}

Status validate(const Graph& graph) {
  const std::string prefix = text("graph '", graph.name, "'");
  std::vector<char> made(graph.values.size(), 0);
  if (Status sources = check_sources(graph, made); !sources.ok()) return sources.with_context(prefix);
  for (const Node& node : graph.nodes) {
    if (Status fits = check_node(graph, node, made); !fits.ok()) {
      return fits.with_context(node.describe()).with_context(prefix);
    }
  }
  if (graph.outputs.empty()) return Status::invalid(prefix, " has no output; a graph has at least one");
  for (ValueId id : graph.outputs) {
    HEDDLE_TRY(check_id(graph, id, text(prefix, ": an output")));
    if (made[id] == 0)
      return Status::invalid(prefix, ": output ", value_name(graph, id), " is made by no node");
  }
  return {};
}

std::string to_string(const Graph& graph) {
  const auto list = [&](const std::vector<ValueId>& ids) {
    std::string out;
    for (ValueId id : ids) {
      if (!out.empty()) out += ", ";
      if (id == kNoValue) {
        out += '-';
      } else {
        const Value& value = graph.values[id];
        out += text('%', id, value.name.empty() ? "" : ":", value.name, ' ', value.type);
      }
    }
    return out;
  };
  std::string out = text("graph '", graph.name, "' (", list(graph.inputs), ")\n");
  for (const Node& node : graph.nodes) {
    out += text("  ", list(node.outputs), " = ", node.op == nullptr ? "?" : node.op->name, '(',
                list(node.inputs), ')');
    for (const auto& [name, attribute] : node.attributes) out += text(' ', name, '=', to_string(attribute));
    out += '\n';
  }
  return out + text("  return ", list(graph.outputs), '\n');
}

std::string to_string(const Attribute& attribute) {
  const auto join = [](const auto& numbers) {
    std::string out = "[";
    for (const auto& number : numbers) out += text(out.size() > 1 ? ", " : "", number);
    return out + "]";
  };
  switch (static_cast<AttributeKind>(attribute.index())) {
    case AttributeKind::kInt:
      return text(std::get<int64_t>(attribute));
    case AttributeKind::kFloat:
      return text(std::get<double>(attribute));
    case AttributeKind::kString:
      return text('"', std::get<std::string>(attribute), '"');
    case AttributeKind::kInts:
      return join(std::get<std::vector<int64_t>>(attribute));
    case AttributeKind::kFloats:
      return join(std::get<std::vector<double>>(attribute));
    case AttributeKind::kTensor:
      return to_string(std::get<Tensor>(attribute).type());
    case AttributeKind::kGraph: {
      const auto& body = std::get<std::shared_ptr<const Graph>>(attribute);
      return text('{', body == nullptr ? size_t{0} : body->nodes.size(), " nodes}");
    }
  }
  return "?";
}

}  // namespace heddle::ir
