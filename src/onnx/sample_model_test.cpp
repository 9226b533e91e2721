// Not tests: the definitions of sample_model.h, which only the test executable needs.
#include "onnx/sample_model.h"

#include <doctest/doctest.h>

#include "ir/op.h"

namespace heddle::onnx {

SampleModel::SampleModel(int64_t opset) {
  model.set_ir_version(8);
  model.set_producer_name("sample");
  auto* import = model.add_opset_import();
  import->set_domain("");
  import->set_version(opset);
  model.mutable_graph()->set_name("sample");
}

namespace {

void declare(proto::ValueInfoProto& value, const std::string& name, int type) {
  value.set_name(name);
  value.mutable_type()->mutable_tensor_type()->set_elem_type(type);
}

proto::AttributeProto& attribute(proto::NodeProto& node, const std::string& name,
                                 proto::AttributeProto::AttributeType type) {
  auto& made = *node.add_attribute();
  made.set_name(name);
  made.set_type(type);
  return made;
}

}  // namespace

proto::ValueInfoProto& SampleModel::input(const std::string& name, const std::vector<Dim>& dims, int type) {
  auto& value = *graph().add_input();
  declare(value, name, type);
  auto* shape = value.mutable_type()->mutable_tensor_type()->mutable_shape();
  for (const Dim& dim : dims) {
    auto* made = shape->add_dim();
    if (const auto* number = std::get_if<int64_t>(&dim)) made->set_dim_value(*number);
    if (const auto* symbol = std::get_if<std::string>(&dim); symbol && !symbol->empty())
      made->set_dim_param(*symbol);
  }
  return value;
}

proto::ValueInfoProto& SampleModel::output(const std::string& name, int type) {
  auto& value = *graph().add_output();
  declare(value, name, type);
  return value;
}

proto::NodeProto& SampleModel::node(const std::string& op, const std::vector<std::string>& inputs,
                                    const std::vector<std::string>& outputs, const std::string& name) {
  auto& made = *graph().add_node();
  fill_node(made, op, inputs, outputs);
  made.set_name(name);
  return made;
}

proto::TensorProto& SampleModel::floats(const std::string& name, const std::vector<int64_t>& dims,
                                        const std::vector<float>& values) {
  auto& tensor = *graph().add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(kFloat);
  for (const int64_t dim : dims) tensor.add_dims(dim);
  tensor.set_raw_data(values.data(), values.size() * sizeof(float));
  return tensor;
}

proto::TensorProto& SampleModel::ints(const std::string& name, const std::vector<int64_t>& values) {
  auto& tensor = *graph().add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(kInt64);
  tensor.add_dims(static_cast<int64_t>(values.size()));
  for (const int64_t value : values) tensor.add_int64_data(value);
  return tensor;
}

Result<ir::Graph> SampleModel::read(const Limits& limits, const std::string& folder) const {
  const std::string text = bytes();
  return read_bytes(as_bytes(text), limits, folder);
}

void fill_node(proto::NodeProto& node, const std::string& op, const std::vector<std::string>& inputs,
               const std::vector<std::string>& outputs) {
  node.set_op_type(op);
  for (const auto& name : inputs) node.add_input(name);
  for (const auto& name : outputs) node.add_output(name);
}

void set(proto::NodeProto& node, const std::string& name, int64_t value) {
  attribute(node, name, proto::AttributeProto::INT).set_i(value);
}
void set(proto::NodeProto& node, const std::string& name, float value) {
  attribute(node, name, proto::AttributeProto::FLOAT).set_f(value);
}
void set(proto::NodeProto& node, const std::string& name, const char* value) {
  attribute(node, name, proto::AttributeProto::STRING).set_s(value);
}
void set(proto::NodeProto& node, const std::string& name, const std::vector<int64_t>& value) {
  auto& made = attribute(node, name, proto::AttributeProto::INTS);
  for (const int64_t number : value) made.add_ints(number);
}

void check_y(SampleModel& m, const ir::Tensor& x, const std::string& type,
             const std::vector<double>& elements) {
  m.output("y").clear_type();
  const auto graph = m.read();
  if (!graph.ok()) FAIL(to_string(graph.status()));
  const auto result = ir::evaluate(*graph, std::vector<ir::Tensor>{x});
  if (!result.ok()) FAIL(to_string(result.status()));
  const ir::Tensor& y = result->front();
  CHECK(to_string(y.type()) == type);
  if (graph->type(graph->inputs[0]).is_static()) CHECK(to_string(graph->type(graph->outputs[0])) == type);
  REQUIRE(y.elements() == static_cast<int64_t>(elements.size()));
  for (int64_t i = 0; i < y.elements(); ++i) {
    CHECK(y.get(i) == doctest::Approx(elements[static_cast<size_t>(i)]).epsilon(1e-5));
  }
}

void check_form(const OpsetForm& form) {
  CAPTURE(form.what);
  CAPTURE(form.opset);
  SampleModel m(form.opset);
  m.input("x", {2, 3});
  form.add(m);
  const std::vector<double> x = {1, 2, 3, 4, 5, 6};
  check_y(m, ir::Tensor::of<double>(ir::DType::kF32, {2, 3}, x), form.shape, form.values);
}

void check_refused(const SampleModel& m, Code code, const std::vector<std::string>& says) {
  const auto graph = m.read();
  REQUIRE_FALSE(graph.ok());
  const std::string& message = graph.status().message();
  CAPTURE(message);
  CHECK(name(graph.status().code()) == name(code));
  for (const std::string& part : says) {
    CAPTURE(part);
    CHECK(message.find(part) != std::string::npos);
  }
}

std::span<const std::byte> as_bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

SampleModel small_network() {
  SampleModel m;
  m.input("x", {"batch", 4});
  m.floats("w", {3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  m.floats("b", {3}, {-100, 0, 1});
  m.ints("shape", {-1, 3, 1});
  auto& gemm = m.node("Gemm", {"x", "w", "b"}, {"h"}, "layer/gemm");
  set(gemm, "transB", int64_t{1});
  set(gemm, "alpha", 0.5f);
  m.node("Relu", {"h"}, {"r"}, "layer/relu");
  m.node("Reshape", {"r", "shape"}, {"y"}, "layer/reshape");
  m.output("y");
  return m;
}

}  // namespace heddle::onnx
