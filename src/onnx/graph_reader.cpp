#include "onnx/graph_reader.h"

#include <algorithm>
#include <set>
#include <utility>

#include "onnx/functions.h"
#include "onnx/names.h"

namespace heddle::onnx {

GraphReader::GraphReader(proto::ModelProto& model, const Limits& limits, ExternalData& external)
    : model_(model), limits_(limits), tensors_(limits, external), builder_(printable(model.graph().name())) {}

Result<ir::Graph> GraphReader::read() {
  HEDDLE_TRY_ASSIGN(functions_, read_functions(model_));
  if (!model_.has_graph()) return Status::invalid("the model has no graph");
  if (model_.graph().sparse_initializer_size() > 0) {
    return Status::unsupported("initializer ",
                               in_quotes(model_.graph().sparse_initializer(0).values().name()),
                               " is sparse; write it as a dense tensor");
  }
  Scope scope;
  HEDDLE_TRY_ASSIGN(scope.opsets, read_opsets(model_.opset_import()));
  HEDDLE_TRY(read_initializers(scope));
  HEDDLE_TRY(read_inputs(scope));
  HEDDLE_TRY(convert_nodes(model_.graph().node(), scope));
  HEDDLE_TRY(read_outputs(scope));
  return builder_.take();
}

Status GraphReader::read_initializers(Scope& scope) {
  for (proto::TensorProto& tensor : *model_.mutable_graph()->mutable_initializer()) {
    const std::string name = tensor.name();
    if (name.empty()) return Status::invalid("an initializer has no name");
    if (scope.values.contains(name)) {
      return Status::invalid("initializer ", in_quotes(name), " occurs twice; every value is made once");
    }
    auto value = tensors_.take(tensor);
    if (!value.ok()) return value.status().with_context("initializer " + in_quotes(name));
    scope.values[name] = {builder_.constant(std::move(*value), printable(name)), {}};
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
    scope.values[input.name()] = {builder_.input(input.name(), std::move(*type)), {}};
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
    if (dim.has_dim_value()) {
      if (dim.dim_value() < 0) {
        return Status::invalid("dimension ", i, " is ", dim.dim_value(),
                               "; it must be 0 or more, or have a name");
      }
      type.shape.emplace_back(dim.dim_value());
      numbers.push_back(dim.dim_value());
    } else if (dim.has_dim_param() && !dim.dim_param().empty()) {
      type.shape.push_back(ir::Dim::symbol(printable(dim.dim_param())));
    } else {
      type.shape.push_back(ir::Dim::symbol(text(input.name(), "_dim", i)));
    }
  }
  HEDDLE_TRY(ir::checked_elements(numbers, *dtype));
  return type;
}

Status GraphReader::read_outputs(const Scope& scope) {
  const auto& outputs = model_.graph().output();
  if (outputs.empty()) return Status::invalid("the graph has no output");
  std::set<ir::ValueId> taken(builder_.graph().inputs.begin(), builder_.graph().inputs.end());
  std::set<std::string_view> names;
  for (const proto::ValueInfoProto& output : outputs) {
    const std::string& name = output.name();
    if (!is_clean(name))
      return Status::invalid("the name of an output is ", in_quotes(name), "; it must be UTF-8 text");
    if (!names.insert(name).second) return Status::invalid("output ", in_quotes(name), " occurs twice");
    const auto found = scope.values.find(name);
    if (name.empty() || found == scope.values.end()) {
      return Status::invalid("output ", in_quotes(name),
                             " is made by no node, and is no input or initializer of the graph");
    }
    ir::ValueId id = found->second.id;
    if (id == ir::kNoValue)
      return Status::unsupported("output ", in_quotes(name), ": ", found->second.absent);
    const ir::Value& value = builder_.value(id);
    if (output.type().has_tensor_type()) {
      const auto declared = dtype_of(output.type().tensor_type().elem_type());
      if (declared != value.type.dtype) {
        return Status::invalid("output ", in_quotes(name), " is declared as ",
                               data_type_name(output.type().tensor_type().elem_type()),
                               ", but its node makes ", value.type);
      }
    }
    // An output has a value of its own: naming it must not rename an input, a weight or another output.
    if (value.is_constant() || !taken.insert(id).second) {
      HEDDLE_TRY_ASSIGN(id, builder_.node("Identity", {id}, {}, name));
      taken.insert(id);
    }
    builder_.output(id, name);
  }
  return {};
}

}  // namespace heddle::onnx
