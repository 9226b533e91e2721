#include "onnx/graph_reader.h"

#include <algorithm>
#include <set>
#include <utility>

#include "onnx/functions.h"
#include "onnx/names.h"

namespace heddle::onnx {

GraphReader::GraphReader(proto::ModelProto& model, const Limits& limits, ExternalData& external)
    : model_(model), limits_(limits), tensors_(limits, external) {}

Result<ir::Graph> GraphReader::read() {
  HEDDLE_TRY_ASSIGN(functions_, read_functions(model_));
  if (!model_.has_graph()) return Status::invalid("the model has no graph");
  // Large weights of the graph itself move out of the model, and are not copied.
  for (proto::TensorProto& weight : *model_.mutable_graph()->mutable_initializer()) {
    auto value = tensors_.take(weight);
    if (!value.ok()) return value.status().with_context("initializer " + in_quotes(weight.name()));
    read_[&weight] = std::move(*value);
  }
  Body body(printable(model_.graph().name()));
  Scope scope;
  scope.body = &body;
  HEDDLE_TRY_ASSIGN(scope.opsets, read_opsets(model_.opset_import()));
  HEDDLE_TRY(read_initializers(model_.graph(), scope));
  HEDDLE_TRY(read_inputs(scope));
  HEDDLE_TRY_ASSIGN(const std::vector<ir::ValueId> outputs, read_body(model_.graph(), scope));
  for (int i = 0; i < model_.graph().output_size(); ++i) {
    body.builder().output(outputs[static_cast<size_t>(i)], model_.graph().output(i).name());
  }
  return body.builder().take();
}

Result<ir::Tensor> GraphReader::tensor(const proto::TensorProto& written) {
  const auto found = read_.find(&written);
  if (found != read_.end()) return found->second;
  HEDDLE_TRY_ASSIGN(ir::Tensor value, tensors_.read(written));
  return read_.emplace(&written, std::move(value)).first->second;
}

GraphReader::Scope GraphReader::inner_scope(const Scope& around, Body* body) {
  Scope scope;
  scope.body = body;
  scope.outer = &around;
  scope.attributes = around.attributes;
  scope.opsets = around.opsets;
  scope.prefix = around.prefix;
  return scope;
}

GraphReader::Found GraphReader::find(std::string_view name, const Scope& scope) {
  for (const Scope* at = &scope; at != nullptr && !name.empty(); at = at->outer) {
    const auto found = at->values.find(name);
    if (found != at->values.end()) return {&found->second, at};
  }
  return {nullptr, nullptr};
}

Result<std::vector<ir::ValueId>> GraphReader::read_body(const proto::GraphProto& graph, Scope& given) {
  Scope scope = given;  // which stays as it is: the graph may be read again
  const Status converted = convert_nodes(graph.node(), scope);
  if (converted.ok()) return read_outputs(graph, scope);
  if (!split_) return converted;
  const Split split = *std::exchange(split_, std::nullopt);
  return read_split(graph, given, split);
}

Status GraphReader::read_initializers(const proto::GraphProto& graph, Scope& scope) {
  if (graph.sparse_initializer_size() > 0) {
    return Status::unsupported("initializer ", in_quotes(graph.sparse_initializer(0).values().name()),
                               " is sparse; write it as a dense tensor");
  }
  for (const proto::TensorProto& written : graph.initializer()) {
    const std::string& name = written.name();
    if (name.empty()) return Status::invalid("an initializer has no name");
    if (scope.values.contains(name)) {
      return Status::invalid("initializer ", in_quotes(name), " occurs twice; every value is made once");
    }
    auto value = tensor(written);
    if (!value.ok()) return value.status().with_context("initializer " + in_quotes(name));
    scope.values[name] = {scope.body->builder().constant(std::move(*value), printable(name)), {}};
  }
  return {};
}

Status GraphReader::read_inputs(Scope& scope) {
  std::set<std::string_view> seen;
  for (const proto::ValueInfoProto& input : model_.graph().input()) {
    if (input.name().empty() || !is_clean(input.name())) {
      return Status::invalid("the name of an input is ", in_quotes(input.name()),
                             "; it must be UTF-8 text, and not empty");
    }
    if (!seen.insert(input.name()).second) {
      return Status::invalid("input ", in_quotes(input.name()), " occurs twice; every value is made once");
    }
    if (scope.values.contains(input.name())) continue;  // an initializer
    auto type = input_type(input);
    if (!type.ok()) return type.status().with_context("input " + in_quotes(input.name()));
    scope.values[input.name()] = {scope.body->builder().input(input.name(), std::move(*type)), {}};
  }
  return {};
}

Result<ir::TensorType> GraphReader::input_type(const proto::ValueInfoProto& input) const {
  if (!input.type().has_tensor_type()) {
    return Status::unsupported("it is no tensor; sequences, maps and optionals are not supported");
  }
  const proto::TypeProto::Tensor& tensor = input.type().tensor_type();
  const auto dtype = dtype_of(tensor.elem_type());
  if (!dtype) {
    return Status::unsupported(
        "element type ", data_type_name(tensor.elem_type()),
        " is not supported; it must be one of f32 f16 bf16 f64 i8 u8 i16 i32 i64 bool");
  }
  if (!tensor.has_shape()) {
    return Status::invalid("it has no shape; the rank must be known, dimensions may have names");
  }
  if (static_cast<size_t>(tensor.shape().dim_size()) > ir::kMaxRank) {
    return Status::unsupported("rank ", tensor.shape().dim_size(), " is not supported; it must be at most ",
                               ir::kMaxRank);
  }
  ir::TensorType type{*dtype, {}};
  std::vector<int64_t> numbers;
  for (int i = 0; i < tensor.shape().dim_size(); ++i) {
    const auto& dim = tensor.shape().dim(i);
    // Exporters write an extent that they do not know as -1 or as "?": any two such may differ.
    const bool unknown = (dim.has_dim_value() && dim.dim_value() == -1) || dim.dim_param() == "?";
    if (dim.has_dim_value() && !unknown) {
      if (dim.dim_value() < 0) {
        return Status::invalid("dimension ", i, " is ", dim.dim_value(),
                               "; it must be 0 or more, or have a name");
      }
      type.shape.emplace_back(dim.dim_value());
      numbers.push_back(dim.dim_value());
    } else if (!dim.dim_param().empty() && !unknown) {
      type.shape.push_back(ir::Dim::symbol(printable(dim.dim_param())));
    } else {
      type.shape.push_back(ir::Dim::symbol(text(input.name(), "_dim", i)));
    }
  }
  HEDDLE_TRY(ir::checked_elements(numbers, *dtype));
  return type;
}

Result<std::vector<ir::ValueId>> GraphReader::read_outputs(const proto::GraphProto& graph,
                                                           const Scope& scope) {
  const auto& outputs = graph.output();
  ir::Builder& builder = scope.body->builder();
  std::vector<ir::ValueId> ids;
  if (outputs.empty()) return Status::invalid("the graph has no output");
  std::set<ir::ValueId> taken;
  std::set<std::string_view> names;
  for (const proto::ValueInfoProto& output : outputs) {
    const std::string& name = output.name();
    if (!is_clean(name))
      return Status::invalid("the name of an output is ", in_quotes(name), "; it must be UTF-8 text");
    if (!names.insert(name).second) return Status::invalid("output ", in_quotes(name), " occurs twice");
    const Found found = find(name, scope);
    if (found.binding == nullptr) {
      return Status::invalid("output ", in_quotes(name),
                             " is made by no node, and is no input or initializer of the graph");
    }
    if (found.binding->id == ir::kNoValue)
      return Status::unsupported("output ", in_quotes(name), ": ", found.binding->absent);
    ir::ValueId id = scope.body->import(found.binding->id, *found.scope->body);
    const ir::Value& value = builder.value(id);
    if (output.type().has_tensor_type() &&
        output.type().tensor_type().elem_type() != proto::TensorProto::UNDEFINED) {
      const auto declared = dtype_of(output.type().tensor_type().elem_type());
      if (declared != value.type.dtype) {
        return Status::invalid("output ", in_quotes(name), " is declared as ",
                               data_type_name(output.type().tensor_type().elem_type()),
                               ", but its node makes ", value.type);
      }
    }
    // An output has a value of its own: naming it must not rename an input, a weight or another output.
    const std::vector<ir::ValueId>& inputs = builder.graph().inputs;
    const bool is_input = std::find(inputs.begin(), inputs.end(), id) != inputs.end();
    if (value.is_constant() || is_input || !taken.insert(id).second) {
      HEDDLE_TRY_ASSIGN(id, builder.node("Identity", {id}, {}, name));
      taken.insert(id);
    }
    ids.push_back(id);
  }
  return ids;
}

}  // namespace heddle::onnx
