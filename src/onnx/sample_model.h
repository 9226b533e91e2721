// sample_model.h: small ONNX models, made in memory for the tests of this folder.
//
//   What       A ModelProto with short ways to add inputs, weights, nodes and outputs. Tests break it on
//              purpose.
//   Threads    A plain value.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "onnx/proto.h"
#include "onnx/reader.h"

namespace heddle::onnx {

inline constexpr int kFloat = proto::TensorProto::FLOAT;
inline constexpr int kInt64 = proto::TensorProto::INT64;

struct SampleModel {
  using Dim = std::variant<int64_t, std::string>;

  explicit SampleModel(int64_t opset = 17);

  proto::GraphProto& graph() { return *model.mutable_graph(); }
  proto::ValueInfoProto& input(const std::string& name, const std::vector<Dim>& dims, int type = kFloat);
  proto::ValueInfoProto& output(const std::string& name, int type = kFloat);
  proto::NodeProto& node(const std::string& op, const std::vector<std::string>& inputs,
                         const std::vector<std::string>& outputs, const std::string& name = "");
  proto::TensorProto& floats(const std::string& name, const std::vector<int64_t>& dims,
                             const std::vector<float>& values);
  proto::TensorProto& ints(const std::string& name, const std::vector<int64_t>& values);

  std::string bytes() const { return model.SerializeAsString(); }
  Result<ir::Graph> read(const Limits& limits = {}, const std::string& folder = "") const;

  proto::ModelProto model;
};

void fill_node(proto::NodeProto& node, const std::string& op, const std::vector<std::string>& inputs,
               const std::vector<std::string>& outputs);
void set(proto::NodeProto& node, const std::string& name, int64_t value);
void set(proto::NodeProto& node, const std::string& name, float value);
void set(proto::NodeProto& node, const std::string& name, const char* value);
void set(proto::NodeProto& node, const std::string& name, const std::vector<int64_t>& value);

// Adds the output "y" to a model of one input, x: checks its type and elements for this x.
void check_y(SampleModel& m, const ir::Tensor& x, const std::string& type,
             const std::vector<double>& elements);

// One node in the form that an operator had in an operator set.
struct OpsetForm {
  std::string what;
  int64_t opset;
  std::function<void(SampleModel&)> add;  // nodes that make "y" from x = [[1 2 3] [4 5 6]], f32[2, 3]
  std::string shape;
  std::vector<double> values;
};
void check_form(const OpsetForm& form);

// The model is refused with this code, and the message has each of these parts.
void check_refused(const SampleModel& m, Code code, const std::vector<std::string>& says);

std::span<const std::byte> as_bytes(const std::string& text);

// x: f32[batch, 4] -> Gemm, Relu, Reshape by constants -> y: a valid model with most kinds of records.
SampleModel small_network();

}  // namespace heddle::onnx
