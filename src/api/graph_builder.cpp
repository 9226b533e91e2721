// graph_builder.cpp: GraphBuilder over ir::Builder.
#include <cstring>

#include "api/internals.h"
#include "api/model_making.h"
#include "ir/builder.h"

namespace heddle {
namespace {

ir::Tensor to_literal(const Tensor& tensor) {
  const Tensor dense = tensor.to_host().contiguous();
  const device::View& view = Internals::view(dense);
  ir::Tensor literal = ir::Tensor::zeros(view.dtype, view.extents);
  if (view.bytes() > 0) std::memcpy(literal.mutable_data(), dense.data(), view.bytes());
  return literal;
}

Tensor from_literal(const ir::Tensor& literal) {
  auto kept = std::make_shared<ir::Tensor>(literal);
  auto* data = static_cast<std::byte*>(kept->mutable_data());
  return Internals::make_tensor(device::View::contiguous(data, literal.dtype(), literal.extents()), kept);
}

ir::Attribute to_ir_attribute(const Attribute& attribute) {
  if (const auto* tensor = std::get_if<Tensor>(&attribute)) return to_literal(*tensor);
  return std::visit(
      [](const auto& value) -> ir::Attribute {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Tensor>) {
          return int64_t{0};  // handled above
        } else {
          return value;
        }
      },
      attribute);
}

std::vector<ir::ValueId> to_ids(const std::vector<GraphBuilder::Value>& values, const ir::Builder& builder) {
  std::vector<ir::ValueId> ids;
  for (const GraphBuilder::Value value : values) {
    if (value.id != ir::kNoValue && value.id >= builder.graph().values.size()) {
      throw Error(ErrorCode::invalid, "a value of another GraphBuilder was given");
    }
    ids.push_back(value.id);
  }
  return ids;
}

}  // namespace

struct GraphBuilder::Rep {
  explicit Rep(std::string name) : builder(std::move(name)) {}
  ir::Builder builder;
  bool built = false;

  ir::Builder& open() {
    if (built) throw Error(ErrorCode::invalid, "this GraphBuilder has built its model already");
    return builder;
  }
};

GraphBuilder::GraphBuilder(std::string name) : rep_(std::make_unique<Rep>(std::move(name))) {}
GraphBuilder::~GraphBuilder() = default;
GraphBuilder::GraphBuilder(GraphBuilder&&) noexcept = default;
GraphBuilder& GraphBuilder::operator=(GraphBuilder&&) noexcept = default;

GraphBuilder::Value GraphBuilder::input(const std::string& name, DType dtype,
                                        const std::vector<DimArgument>& shape) {
  ir::Builder& builder = rep_->open();
  if (shape.size() > ir::kMaxRank) {
    throw Error(ErrorCode::invalid, text("input '", name, "' has ", shape.size(), " dimensions; at most ",
                                         ir::kMaxRank, " are possible"));
  }
  for (const ir::ValueId id : builder.graph().inputs) {
    if (builder.value(id).name == name)
      throw Error(ErrorCode::invalid, text("there is an input '", name, "' already"));
  }
  ir::TensorType type{to_ir(dtype), {}};
  for (const Dim& dim : shape) {
    if (const auto* number = std::get_if<int64_t>(&dim)) {
      if (*number < 0)
        throw Error(ErrorCode::invalid, text("input '", name, "' has a dimension of ", *number,
                                             "; name a symbol for a free one"));
      type.shape.emplace_back(*number);
    } else {
      type.shape.push_back(ir::Dim::symbol(std::get<std::string>(dim)));
    }
  }
  return {builder.input(name, std::move(type))};
}

GraphBuilder::Value GraphBuilder::constant(const Tensor& tensor) {
  return within_memory([&]() -> Value { return {rep_->open().constant(to_literal(tensor))}; });
}

GraphBuilder::Value GraphBuilder::add(std::string_view op, const std::vector<Value>& inputs,
                                      const AttributeList& attributes, const std::string& name) {
  return add_multiple(op, inputs, 1, attributes, name).front();
}

std::vector<GraphBuilder::Value> GraphBuilder::add_multiple(std::string_view op,
                                                            const std::vector<Value>& inputs, size_t outputs,
                                                            const AttributeList& attributes,
                                                            const std::string& name) {
  return within_memory([&] {
    ir::Builder& builder = rep_->open();
    ir::Attributes converted;
    for (const auto& [key, value] : attributes) converted.set(key, to_ir_attribute(value));
    std::vector<Value> values;
    for (const ir::ValueId id :
         take(builder.nodes(op, to_ids(inputs, builder), outputs, std::move(converted), name)))
      values.push_back({id});
    return values;
  });
}

void GraphBuilder::output(Value value, const std::string& name) {
  ir::Builder& builder = rep_->open();
  (void)to_ids({value}, builder);
  builder.output(value.id, name);
}

std::string GraphBuilder::type(Value value) const {
  (void)to_ids({value}, rep_->builder);
  return to_string(rep_->builder.value(value.id).type);
}

Port GraphBuilder::port(Value value) const {
  (void)to_ids({value}, rep_->builder);
  const ir::Value& described = rep_->builder.value(value.id);
  Port port{described.name, to_public(described.type.dtype), {}};
  for (const ir::Dim& dim : described.type.shape) port.shape.push_back(to_string(dim));
  return port;
}

Model GraphBuilder::build(const ModelOptions& options) {
  return within_memory([&] {
    ir::Graph graph = take(rep_->open().take());
    rep_->built = true;
    return make_model(std::move(graph), options);
  });
}

std::vector<Tensor> GraphBuilder::evaluate(std::span<const Tensor> inputs) const {
  return within_memory([&] {
    std::vector<ir::Tensor> literals;
    for (const Tensor& input : inputs) literals.push_back(to_literal(input));
    std::vector<Tensor> outputs;
    for (const ir::Tensor& output : take(ir::evaluate(rep_->open().graph(), literals)))
      outputs.push_back(from_literal(output));
    return outputs;
  });
}

}  // namespace heddle
