// control_test.cpp: models that keep a state while they run: recurrent nodes, loops, branches that data
// chooses.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "harness_fixture.h"
#include "onnx/proto.h"

namespace stress {
namespace {

namespace proto = heddle::onnx::proto;

constexpr int kThreads = 8;

constexpr int64_t kInputs = 16, kHidden = 32;

std::vector<Tensor> no_state() {
  return {Tensor::zeros(heddle::DType::f32, {1, 1, kHidden}),
          Tensor::zeros(heddle::DType::f32, {1, 1, kHidden})};
}

// A speech model in small: the state that one chunk leaves goes into the next.
struct Speech {
  heddle::Model model;
  std::vector<std::vector<Tensor>> chunks;                 // by voice
  std::vector<std::vector<std::vector<Tensor>>> expected;  // by voice and chunk

  // The number of chunks whose values are right.
  int listen(size_t voice) const {
    std::vector<Tensor> state = no_state();
    int right = 0;
    for (size_t i = 0; i < chunks[voice].size(); ++i) {
      const std::vector<Tensor> got = model({chunks[voice][i], state[0], state[1]});
      bool same = got.size() == 3;
      for (size_t k = 0; same && k < 3; ++k) same = difference(got[k], expected[voice][i][k]) <= kClose;
      right += same ? 1 : 0;
      state = {got[1], got[2]};
    }
    return right;
  }
};

Speech speech_model(const heddle::Device& device) {
  heddle::GraphBuilder graph("speech");
  const auto weight = [&](const heddle::Shape& shape, uint32_t seed) {
    Tensor t = random_tensor(shape, seed);
    for (int64_t i = 0; i < t.elements(); ++i) static_cast<float*>(t.mutable_data())[i] *= 0.2F;
    return graph.constant(t);
  };
  const auto x = graph.input("x", heddle::DType::f32, {"steps", 1, kInputs});
  const auto h = graph.input("h", heddle::DType::f32, {1, 1, kHidden});
  const auto c = graph.input("c", heddle::DType::f32, {1, 1, kHidden});
  const auto made =
      graph.add_multiple("LSTM",
                         {x, weight({1, 4 * kHidden, kInputs}, 1), weight({1, 4 * kHidden, kHidden}, 2),
                          weight({1, 8 * kHidden}, 3), heddle::GraphBuilder::absent(), h, c},
                         3);
  const auto state_shape = graph.constant(Tensor::of<int64_t>({3}, {1, 1, kHidden}));
  graph.output(made[0], "y");
  graph.output(graph.add("Reshape", {made[1], state_shape}), "h");
  graph.output(graph.add("Reshape", {made[2], state_shape}), "c");
  std::vector<std::vector<Tensor>> chunks(3);
  std::vector<std::vector<std::vector<Tensor>>> expected(3);
  for (uint32_t voice = 0; voice < 3; ++voice) {
    std::vector<Tensor> state = no_state();
    for (uint32_t i = 0; i < 20; ++i) {
      chunks[voice].push_back(random_tensor({1 + (i * 7 + voice) % 9, 1, kInputs}, voice * 100 + i));
      expected[voice].push_back(
          graph.evaluate(std::vector<Tensor>{chunks[voice].back(), state[0], state[1]}));
      state = {expected[voice].back()[1], expected[voice].back()[2]};
    }
  }
  heddle::ModelOptions options;
  options.device = device;
  return {graph.build(options), std::move(chunks), std::move(expected)};
}

proto::NodeProto& node(proto::GraphProto& graph, const char* op, const std::vector<std::string>& inputs,
                       const std::vector<std::string>& outputs) {
  proto::NodeProto& made = *graph.add_node();
  made.set_op_type(op);
  made.set_name(outputs[0]);
  for (const std::string& name : inputs) made.add_input(name);
  for (const std::string& name : outputs) made.add_output(name);
  return made;
}

proto::GraphProto& nested(proto::NodeProto& node, const char* attribute) {
  proto::AttributeProto& made = *node.add_attribute();
  made.set_name(attribute);
  made.set_type(proto::AttributeProto::GRAPH);
  made.mutable_g()->set_name(attribute);
  return *made.mutable_g();
}

proto::ValueInfoProto& declare(proto::ValueInfoProto& value, const char* name, int type = 1) {
  value.set_name(name);
  value.mutable_type()->mutable_tensor_type()->set_elem_type(type);
  return value;
}

void number(proto::GraphProto& graph, const char* name, float value) {
  proto::TensorProto& made = *graph.add_initializer();
  made.set_name(name);
  made.set_data_type(proto::TensorProto::FLOAT);
  made.add_float_data(value);
}

void add_scalar_attribute(proto::NodeProto& node, const char* name, int64_t value) {
  proto::AttributeProto& made = *node.add_attribute();
  made.set_name(name);
  made.set_type(proto::AttributeProto::INT);
  made.set_i(value);
}

// One branch of an If: one node over values of the graphs around it.
void branch(proto::NodeProto& choice, const char* which, const char* op,
            const std::vector<std::string>& inputs) {
  proto::GraphProto& graph = nested(choice, which);
  node(graph, op, inputs, {std::string(which) + "_value"});
  declare(*graph.add_output(), (std::string(which) + "_value").c_str());
}

constexpr int64_t kWidth = 4;

// For each row of x: s = s / 2 + (2 row, when the row's sum is above 0; else -row). Gives every s, and the
// last one, negated unless the sum of x is above 0.
void write_running(const std::string& path) {
  proto::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  proto::GraphProto& graph = *model.mutable_graph();
  graph.set_name("running");
  auto* rows = declare(*graph.add_input(), "x").mutable_type()->mutable_tensor_type()->mutable_shape();
  rows->add_dim()->set_dim_param("rows");
  rows->add_dim()->set_dim_value(kWidth);
  declare(*graph.add_input(), "s")
      .mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->add_dim()
      ->set_dim_value(kWidth);
  number(graph, "zero", 0);
  number(graph, "two", 2);
  number(graph, "half", 0.5F);
  proto::TensorProto& first = *graph.add_initializer();
  first.set_name("first");
  first.set_data_type(proto::TensorProto::INT64);
  first.add_int64_data(0);
  node(graph, "Shape", {"x"}, {"shape"});
  node(graph, "Gather", {"shape", "first"}, {"count"});
  proto::NodeProto& loop = node(graph, "Loop", {"count", "", "s"}, {"last", "all"});
  proto::GraphProto& body = nested(loop, "body");
  declare(*body.add_input(), "i", proto::TensorProto::INT64);
  declare(*body.add_input(), "go", proto::TensorProto::BOOL);
  declare(*body.add_input(), "before");
  node(body, "Gather", {"x", "i"}, {"row"});
  add_scalar_attribute(node(body, "ReduceSum", {"row"}, {"row_sum"}), "keepdims", 0);
  node(body, "Greater", {"row_sum", "zero"}, {"up"});
  proto::NodeProto& choice = node(body, "If", {"up"}, {"step"});
  branch(choice, "then_branch", "Mul", {"row", "two"});
  branch(choice, "else_branch", "Neg", {"row"});
  node(body, "Mul", {"before", "half"}, {"kept"});
  node(body, "Add", {"kept", "step"}, {"after"});
  node(body, "Identity", {"go"}, {"go_on"});
  node(body, "Identity", {"after"}, {"shown"});
  declare(*body.add_output(), "go_on", proto::TensorProto::BOOL);
  declare(*body.add_output(), "after");
  declare(*body.add_output(), "shown");
  add_scalar_attribute(node(graph, "ReduceSum", {"x"}, {"sum"}), "keepdims", 0);
  node(graph, "Greater", {"sum", "zero"}, {"above"});
  proto::NodeProto& sign = node(graph, "If", {"above"}, {"signed"});
  branch(sign, "then_branch", "Identity", {"last"});
  branch(sign, "else_branch", "Neg", {"last"});
  declare(*graph.add_output(), "all");
  declare(*graph.add_output(), "signed");
  std::ofstream(path, std::ios::binary) << model.SerializeAsString();
}

std::vector<Tensor> running(const Tensor& x, const Tensor& s) {
  const int64_t rows = x.shape()[0];
  std::vector<float> all, now(s.values<float>().begin(), s.values<float>().end());
  float total = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const auto values = x.values<float>().subspan(static_cast<size_t>(row * kWidth), kWidth);
    float sum = 0;
    for (const float v : values) sum += v;
    total += sum;
    for (size_t k = 0; k < kWidth; ++k) now[k] = now[k] * 0.5F + (sum > 0 ? values[k] * 2 : -values[k]);
    all.insert(all.end(), now.begin(), now.end());
  }
  if (!(total > 0)) {
    for (float& v : now) v = -v;
  }
  return {Tensor::of<float>({rows, kWidth}, all), Tensor::of<float>({kWidth}, now)};
}

// Loops of up to 64 turns are unrolled, longer ones are not.
Case running_model(const heddle::Device& device) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("heddle_running_" + std::to_string(getpid()) + ".onnx"))
          .string();
  write_running(path);
  heddle::ModelOptions options;
  options.device = device;
  Case c{"running", heddle::Model::load(path, options), {}, {}};
  std::filesystem::remove(path);
  uint32_t seed = 0;
  for (const int64_t rows : {1, 3, 64, 65, 100}) {
    for (int i = 0; i < 4; ++i) {
      c.inputs.push_back({random_tensor({rows, kWidth}, ++seed), random_tensor({kWidth}, ++seed)});
      c.expected.push_back(running(c.inputs.back()[0], c.inputs.back()[1]));
    }
  }
  return c;
}

}  // namespace

TEST_CASE("eight threads carry a recurrent state each through twenty chunks: all values right") {
  const Speech speech = speech_model(fresh_device());
  CHECK(speech.listen(0) == 20);
  std::atomic<int> right = 0;
  const auto errors = run_threads(kThreads, [&](int thread) {
    for (size_t round = 0; round < 3; ++round)
      right += speech.listen((static_cast<size_t>(thread) + round) % 3);
  });
  for (const std::string& error : errors) FAIL_CHECK(error);
  CHECK(right == kThreads * 3 * 20);
}

TEST_CASE("eight threads run loops with branches that data chooses: all values right, cold and warm") {
  const Case c = running_model(fresh_device());
  std::atomic<int> right = 0;
  const int calls = static_cast<int>(3 * c.inputs.size());
  const auto errors = run_threads(kThreads, [&](int thread) {
    for (int i = 0; i < calls; ++i) right += c.call(static_cast<size_t>(thread * 7 + i)) ? 1 : 0;
  });
  for (const std::string& error : errors) FAIL_CHECK(error);
  CHECK(right == kThreads * calls);
}

}  // namespace stress
