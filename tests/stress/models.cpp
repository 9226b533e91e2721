// models.cpp: the models of the stress tests, built by hand so that no file is needed, with inputs and
// single-threaded results.
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "harness_fixture.h"

namespace stress {
namespace {

using heddle::AttributeList;
using heddle::DType;
using heddle::GraphBuilder;
using Value = GraphBuilder::Value;
using Ints = std::vector<int64_t>;

// A file's model has the width that it has: on the double under a sanitizer it takes minutes.
bool are_files_left_out() { return narrower(8) <= 1; }

// A graph with seeded weights, scaled so that activations keep their size.
class Net {
 public:
  explicit Net(const std::string& name) : graph(name) {}

  Value weight(const heddle::Shape& shape, int64_t fan_in) {
    Tensor t = random_tensor(shape, ++seed_);
    auto* data = static_cast<float*>(t.mutable_data());
    for (int64_t i = 0; i < t.elements(); ++i) data[i] /= std::sqrt(static_cast<float>(fan_in));
    return graph.constant(t);
  }
  Value ints(const Ints& values) {
    return graph.constant(Tensor::of<int64_t>({static_cast<int64_t>(values.size())}, values));
  }
  Value linear(Value x, int64_t in, int64_t out) {
    return graph.add("Add", {graph.add("MatMul", {x, weight({in, out}, in)}), weight({out}, 1)});
  }
  Value norm(Value x, int64_t width) {
    return graph.add("LayerNormalization", {x, weight({width}, 1), weight({width}, 1)},
                     {{"axis", int64_t{-1}}, {"epsilon", 1e-5}});
  }
  Value conv(Value x, int64_t in, int64_t out, int64_t kernel) {
    return graph.add("Conv", {x, weight({out, in, kernel}, in * kernel), weight({out}, 1)},
                     {{"kernel_shape", Ints{kernel}}});
  }
  // [B, S, H*D] -> [B, H, S, D]
  Value heads(Value x, int64_t count, int64_t width) {
    return graph.add("Transpose", {graph.add("Reshape", {x, ints({0, 0, count, width / count})})},
                     {{"perm", Ints{0, 2, 1, 3}}});
  }
  Value attention(Value x, int64_t count, int64_t width) {
    const Value q = heads(linear(x, width, width), count, width);
    const Value k = heads(linear(x, width, width), count, width);
    const Value v = heads(linear(x, width, width), count, width);
    const Value kt = graph.add("Transpose", {k}, {{"perm", Ints{0, 1, 3, 2}}});
    const float scale = 1 / std::sqrt(static_cast<float>(width / count));
    const Value scores =
        graph.add("Mul", {graph.add("MatMul", {q, kt}), graph.constant(Tensor::of<float>({}, {scale}))});
    const Value mixed = graph.add("MatMul", {graph.add("Softmax", {scores}, {{"axis", int64_t{-1}}}), v});
    const Value joined = graph.add("Transpose", {mixed}, {{"perm", Ints{0, 2, 1, 3}}});
    return linear(graph.add("Reshape", {joined, ints({0, 0, width})}), width, width);
  }

  GraphBuilder graph;

 private:
  uint32_t seed_ = 0;
};

heddle::ModelOptions options_of(const heddle::Device& device, bool coalesce) {
  heddle::ModelOptions options;
  options.device = device;
  options.coalesce = coalesce;
  return options;
}

Case finish(const std::string& name, Net& net, Value output, const heddle::ModelOptions& options,
            const std::vector<heddle::Shape>& shapes) {
  net.graph.output(output, "y");
  std::vector<std::vector<Tensor>> inputs;
  std::vector<std::vector<Tensor>> oracle;
  uint32_t seed = 1000;
  for (const heddle::Shape& shape : shapes) {
    inputs.push_back({random_tensor(shape, ++seed)});
    oracle.push_back(net.graph.evaluate(inputs.back()));
  }
  return Case{name, net.graph.build(options), std::move(inputs), std::move(oracle)};
}

// Written by tools/models/minilm.py, which make test runs first: the model, and sentences with what ONNX
// Runtime makes of them.
// HEDDLE_TEST_MODELS, the variable: on another machine than the one that compiled this (tools/gpu_check.py).
std::string models_folder() {
  const char* const there = std::getenv("HEDDLE_TEST_MODELS");
  return there == nullptr ? HEDDLE_TEST_MODELS : there;
}
const std::string kMinilm = models_folder() + "/minilm.onnx";
const std::string kMinilmValues = models_folder() + "/minilm_values.bin";
constexpr int64_t kMinilmWidth = 384;

Tensor read(std::istream& file, DType dtype, const heddle::Shape& shape) {
  Tensor tensor = Tensor::zeros(dtype, shape);
  const auto bytes = static_cast<std::streamsize>(static_cast<size_t>(tensor.elements()) * size_of(dtype));
  if (!file.read(static_cast<char*>(tensor.mutable_data()), bytes)) {
    throw std::runtime_error(kMinilmValues + " is missing or too short: make test ONLY=models writes it");
  }
  return tensor;
}

Case minilm(const heddle::Device& device) {
  heddle::ModelOptions options;
  options.device = device;
  Case c{"minilm", heddle::Model::load(kMinilm, options), {}, {}};
  std::ifstream file(kMinilmValues, std::ios::binary);
  do {
    const int64_t length = read(file, DType::i64, {1}).values<int64_t>()[0];
    const Tensor ids = read(file, DType::i64, {1, length}), mask = read(file, DType::i64, {1, length});
    c.inputs.push_back({ids, mask, Tensor::zeros(DType::i64, {1, length})});
    const Tensor tokens = read(file, DType::f32, {1, length, kMinilmWidth});
    c.expected.push_back({tokens, read(file, DType::f32, {1, kMinilmWidth})});
  } while (file.peek() != std::ifstream::traits_type::eof());
  return c;
}

}  // namespace

// Where reference operators stand for a GPU (the Metal double), a model of full width takes seconds a call.
// Under a sanitizer the reference interpreter takes seconds to say what it should give.
int64_t narrower(int64_t width) {
  static const char* const by = std::getenv("HEDDLE_TEST_NARROWER");
  return by == nullptr ? width : width / std::atoi(by);
}

Case mlp(const heddle::Device& device, bool coalesce) { return mlp_with(options_of(device, coalesce)); }
Case encoder(const heddle::Device& device, bool coalesce) {
  return encoder_with(options_of(device, coalesce));
}

Case mlp_with(const heddle::ModelOptions& options) {
  const int64_t outer = narrower(512), inner = narrower(1024);
  Net net("mlp");
  Value x = net.graph.input("x", DType::f32, {"batch", outer});
  x = net.graph.add("Relu", {net.linear(x, outer, inner)});
  x = net.graph.add("Relu", {net.linear(x, inner, inner)});
  return finish("mlp", net, net.linear(x, inner, outer), options, {{1, outer}, {2, outer}, {5, outer}});
}

Case conv1d(const heddle::Device& device, bool coalesce) {
  const int64_t in = narrower(64), channels = narrower(128);
  Net net("conv1d");
  Value x = net.graph.input("x", DType::f32, {"batch", in, 100});
  x = net.graph.add("Relu", {net.conv(x, in, channels, 5)});
  x = net.graph.add("Relu", {net.conv(x, channels, channels, 5)});
  x = net.graph.add("ReduceMean", {x, net.ints({2})}, {{"keepdims", int64_t{0}}});
  return finish("conv1d", net, net.linear(x, channels, 64), options_of(device, coalesce),
                {{1, in, 100}, {2, in, 100}});
}

Case encoder_with(const heddle::ModelOptions& options) {
  const int64_t width = narrower(256), wide = narrower(1024);
  Net net("encoder");
  Value x = net.graph.input("x", DType::f32, {"batch", "tokens", width});
  for (int layer = 0; layer < 2; ++layer) {
    x = net.norm(net.graph.add("Add", {x, net.attention(x, 4, width)}), width);
    const Value hidden = net.graph.add("Gelu", {net.linear(x, width, wide)});
    x = net.norm(net.graph.add("Add", {x, net.linear(hidden, wide, width)}), width);
  }
  return finish("encoder", net, x, options, {{1, 32, width}, {2, 32, width}, {1, 7, width}});
}

Case small(const heddle::Device& device, int64_t width, bool coalesce) {
  Net net("small");
  const Value x = net.graph.input("x", DType::f32, {"batch", width});
  const Value two = net.graph.constant(Tensor::of<float>({}, {2.0F}));
  const Value one = net.graph.constant(Tensor::of<float>({}, {1.0F}));
  const Value y = net.graph.add("Add", {net.graph.add("Mul", {x, two}), one});
  return finish("small", net, y, options_of(device, coalesce),
                {{1, width}, {3, width}, {4, width}, {16, width}});
}

std::vector<Case> all_models(const heddle::Device& device) {
  std::vector<Case> cases;
  cases.push_back(mlp(device));
  cases.push_back(conv1d(device));
  cases.push_back(encoder(device));
  if (!are_files_left_out()) cases.push_back(minilm(device));
  return cases;
}

}  // namespace stress
