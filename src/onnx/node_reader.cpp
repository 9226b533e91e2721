// The part of GraphReader that converts nodes, and inlines the model's own functions.
#include <algorithm>
#include <utility>

#include "onnx/graph_reader.h"
#include "onnx/names.h"
#include "onnx/operators.h"

namespace heddle::onnx {

namespace {

// A list of words (the activations of a recurrent node) becomes one text with commas between them.
Result<ir::Attribute> words(const proto::AttributeProto& attribute) {
  std::string all;
  for (const std::string& word : attribute.strings()) {
    if (!is_clean(word) || word.empty() || word.find(',') != std::string::npos) {
      return Status::invalid("it holds ", in_quotes(word), "; it must hold words of UTF-8 without commas");
    }
    all += text(all.empty() ? "" : ",", word);
  }
  return ir::Attribute(all);
}

}  // namespace

Status GraphReader::convert_nodes(const Nodes& nodes, Scope& scope) {
  std::set<std::string_view> given;
  for (const auto& [name, binding] : scope.values) given.insert(name);
  const auto visible = [&](std::string_view name) { return find(name, scope).binding != nullptr; };
  HEDDLE_TRY_ASSIGN(const std::vector<int> order, topological_order(nodes, given, visible));
  for (const int i : order) HEDDLE_TRY(convert_node(nodes[i], scope));
  return {};
}

Status GraphReader::convert_node(const proto::NodeProto& node, Scope& scope) {
  if (++nodes_ > limits_.nodes) {
    return Status::invalid(describe(node), ": the model has more than ", limits_.nodes,
                           " nodes once its functions are inlined");
  }
  if (node.output_size() == 0) return Status::invalid(describe(node), ": it has no output");
  const auto function = functions_.find(function_key(node.domain(), node.op_type(), node.overload()));
  if (function != functions_.end()) return inline_function(node, *function->second, scope);
  return convert_operator(node, scope);
}

Result<const Operator*> GraphReader::choose_operator(const proto::NodeProto& node, const Scope& scope) const {
  const std::string_view domain = short_domain(node.domain());
  if (!domain.empty()) {
    return Status::unsupported(
        describe(node), ": operator ", printable(domain), ".", printable(node.op_type()),
        " is not known; Heddle knows domain ai.onnx, ai.onnx.preview.FlexAttention and "
        "functions the model defines");
  }
  const auto imported = scope.opsets.find("");
  if (imported == scope.opsets.end()) {
    return Status::invalid(describe(node),
                           ": the model does not say which opset of ai.onnx it uses; opset_import must");
  }
  if (const Refusal* refusal = find_refusal(node.op_type())) {
    return Status::unsupported(describe(node), ": Heddle does not run it: ", refusal->reason);
  }
  const Operator* known = find_operator(node.op_type());
  const std::string spelled =
      text("operator ai.onnx.", printable(node.op_type()), " of opset ", imported->second);
  if (known == nullptr) {
    return Status::unsupported(describe(node), ": ", spelled,
                               " is not known; write it with others, or as a function of the model");
  }
  if (imported->second < known->since) {
    return Status::invalid(describe(node), ": ", spelled,
                           " is not known; the oldest form that is known is of opset ", known->since);
  }
  return known;
}

Status GraphReader::convert_operator(const proto::NodeProto& node, Scope& scope) {
  if (node.domain() == "ai.onnx.preview" && node.op_type() == "FlexAttention") {
    return convert_flex_attention(node, scope);
  }
  HEDDLE_TRY_ASSIGN(const Operator* known, choose_operator(node, scope));
  if (known->convert == nullptr) return convert_control(node, scope);
  HEDDLE_TRY_ASSIGN(auto inputs, operands(node, scope));
  HEDDLE_TRY_ASSIGN(auto given, attributes(node, scope));
  Call call({scope.prefix + node_name(node), node.op_type(), scope.opsets.find("")->second,
             static_cast<size_t>(node.output_size())},
            std::move(inputs), std::move(given), scope.body->builder());
  HEDDLE_TRY(known->convert(call));
  bind_outputs(node, call.bound(), scope);
  return {};
}

Result<std::vector<ir::ValueId>> GraphReader::operands(const proto::NodeProto& node,
                                                       const Scope& scope) const {
  std::vector<ir::ValueId> ids;
  for (int i = 0; i < node.input_size(); ++i) {
    const Found found = find(node.input(i), scope);
    if (found.binding != nullptr && !found.binding->absent.empty()) {
      return Status::unsupported(describe(node), ": input ", i, ", ", in_quotes(node.input(i)), ": ",
                                 found.binding->absent);
    }
    const bool there = found.binding != nullptr && found.binding->id != ir::kNoValue;
    ids.push_back(there ? scope.body->import(found.binding->id, *found.scope->body) : ir::kNoValue);
  }
  return ids;
}

void GraphReader::bind_outputs(const proto::NodeProto& node, const std::vector<ir::ValueId>& ids,
                               Scope& scope) const {
  for (int i = 0; i < node.output_size(); ++i) {
    if (node.output(i).empty()) continue;
    const ir::ValueId id = ids[static_cast<size_t>(i)];
    scope.values[node.output(i)] = {
        id,
        id != ir::kNoValue ? "" : text("output ", i, " of ", describe(node), " is not computed by Heddle")};
  }
}

Result<ir::Attributes> GraphReader::attributes(const proto::NodeProto& node, const Scope& scope) {
  ir::Attributes attributes;
  for (const proto::AttributeProto& written : node.attribute()) {
    const proto::AttributeProto* meant = &written;
    if (!written.ref_attr_name().empty()) {
      const auto found = scope.attributes.find(written.ref_attr_name());
      if (found == scope.attributes.end()) continue;  // the caller left it out: so does this node
      meant = found->second;
    }
    const std::string name = printable(written.name());
    auto value = attribute(*meant);
    if (!value.ok()) return value.status().with_context(text(describe(node), ": attribute '", name, "'"));
    if (attributes.has(name)) return Status::invalid(describe(node), ": attribute '", name, "' occurs twice");
    attributes.set(name, std::move(*value));
  }
  return attributes;
}

Result<ir::Attribute> GraphReader::attribute(const proto::AttributeProto& attribute) {
  using Kind = proto::AttributeProto;
  const auto check_size = [&](auto elements) -> Status {
    if (static_cast<uint64_t>(elements) <= limits_.attribute_elements) return {};
    return Status::invalid("it has ", elements, " elements; the limit is ", limits_.attribute_elements);
  };
  switch (attribute.type()) {
    case Kind::FLOAT:
      return ir::Attribute(double{attribute.f()});
    case Kind::INT:
      return ir::Attribute(int64_t{attribute.i()});
    case Kind::STRING:
      HEDDLE_TRY(check_size(attribute.s().size()));
      if (!is_clean(attribute.s()))
        return Status::invalid("it is ", in_quotes(attribute.s()), "; it must be UTF-8 text");
      return ir::Attribute(attribute.s());
    case Kind::FLOATS:
      HEDDLE_TRY(check_size(attribute.floats_size()));
      return ir::Attribute(std::vector<double>(attribute.floats().begin(), attribute.floats().end()));
    case Kind::INTS:
      HEDDLE_TRY(check_size(attribute.ints_size()));
      return ir::Attribute(std::vector<int64_t>(attribute.ints().begin(), attribute.ints().end()));
    case Kind::STRINGS:
      HEDDLE_TRY(check_size(attribute.strings_size()));
      return words(attribute);
    case Kind::TENSOR: {
      HEDDLE_TRY_ASSIGN(ir::Tensor tensor, tensor(attribute.t()));
      return ir::Attribute(std::move(tensor));
    }
    case Kind::UNDEFINED:
      return Status::invalid("it has no type");
    default:
      return Status::unsupported("its kind is ", proto::AttributeProto::AttributeType_Name(attribute.type()),
                                 "; it must be a number, a string, a list of numbers or a tensor");
  }
}

Result<GraphReader::Scope> GraphReader::function_scope(const proto::NodeProto& node,
                                                       const proto::FunctionProto& function,
                                                       const Scope& scope) const {
  if (node.input_size() > function.input_size() || node.output_size() > function.output_size()) {
    return Status::invalid("the node has ", node.input_size(), " inputs and ", node.output_size(),
                           " outputs; the function takes ", function.input_size(), " and gives ",
                           function.output_size());
  }
  Scope inner;
  inner.body = scope.body;
  inner.prefix = scope.prefix + node_name(node) + "/";
  HEDDLE_TRY_ASSIGN(inner.opsets, read_opsets(function.opset_import()));
  if (inner.opsets.empty()) inner.opsets = scope.opsets;
  HEDDLE_TRY_ASSIGN(auto inputs, operands(node, scope));
  inputs.resize(static_cast<size_t>(function.input_size()), ir::kNoValue);
  for (int i = 0; i < function.input_size(); ++i) {
    if (!inner.values.emplace(function.input(i), Binding{inputs[static_cast<size_t>(i)], {}}).second) {
      return Status::invalid("the function takes ", in_quotes(function.input(i)), " twice");
    }
  }
  for (const auto& preset : function.attribute_proto()) inner.attributes[preset.name()] = &preset;
  for (const auto& written : node.attribute()) {
    const proto::AttributeProto* meant = &written;
    if (!written.ref_attr_name().empty()) {
      const auto found = scope.attributes.find(written.ref_attr_name());
      if (found == scope.attributes.end()) continue;
      meant = found->second;
    }
    inner.attributes[written.name()] = meant;
  }
  return inner;
}

Status GraphReader::inline_function(const proto::NodeProto& node, const proto::FunctionProto& function,
                                    Scope& scope) {
  if (std::find(calls_.begin(), calls_.end(), &function) != calls_.end()) {
    return Status::invalid(describe(node), ": function ", in_quotes(function.name()), " calls itself");
  }
  if (calls_.size() >= static_cast<size_t>(limits_.nesting)) {
    return Status::invalid(describe(node), ": functions call each other more than ", limits_.nesting,
                           " deep");
  }
  auto inner = function_scope(node, function, scope);
  if (!inner.ok()) return inner.status().with_context(describe(node));
  calls_.push_back(&function);
  const Status converted = convert_nodes(function.node(), *inner);
  calls_.pop_back();
  if (!converted.ok()) return converted.with_context(describe(node));
  for (int i = 0; i < node.output_size(); ++i) {
    const auto made = inner->values.find(function.output(i));
    if (made == inner->values.end()) {
      return Status::invalid(describe(node), ": the function's output ", in_quotes(function.output(i)),
                             " is made by no node");
    }
    if (!node.output(i).empty()) scope.values[node.output(i)] = made->second;
  }
  return {};
}

}  // namespace heddle::onnx
