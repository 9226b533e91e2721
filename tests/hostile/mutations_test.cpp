// mutations_test.cpp: files changed at random are loaded, compiled and called. Each ends in values or in a
// heddle::Error, within bounded memory.
//
// HEDDLE_HOSTILE_MUTATIONS: how many of each model; `make test-long` runs more.
#include <doctest/doctest.h>
#include <heddle/heddle.h>

#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "onnx/sample_model.h"

namespace hostile {
namespace {

using heddle::Tensor;
using heddle::onnx::SampleModel;
using heddle::onnx::set;

SampleModel perceptron() { return heddle::onnx::small_network(); }

SampleModel convolutions() {
  SampleModel m;
  m.input("x", {"batch", 2, 8, 8});
  m.floats("w", {4, 2, 3, 3}, std::vector<float>(72, 0.5f));
  m.floats("t", {4, 2, 2, 2}, std::vector<float>(32, 0.25f));
  auto& conv = m.node("Conv", {"x", "w"}, {"c"}, "conv");
  set(conv, "pads", {1, 1, 1, 1});
  set(conv, "strides", {2, 2});
  auto& pool = m.node("MaxPool", {"c"}, {"p"}, "pool");
  set(pool, "kernel_shape", {2, 2});
  auto& transposed = m.node("ConvTranspose", {"p", "t"}, {"u"}, "transposed");
  set(transposed, "strides", {2, 2});
  set(transposed, "dilations", {1, 1});
  set(m.node("AveragePool", {"u"}, {"y"}, "mean"), "kernel_shape", {3, 3});
  m.output("y");
  return m;
}

SampleModel movements() {
  SampleModel m(18);
  m.input("x", {"n", 6});
  m.ints("pads", {0, 1, 0, 2});
  m.ints("starts", {1});
  m.ints("ends", {7});
  m.ints("axis", {1});
  m.ints("repeats", {2, 3});
  m.ints("wide", {3, 1, 1});
  m.node("Pad", {"x", "pads"}, {"p"}, "pad");
  m.node("Slice", {"p", "starts", "ends", "axis"}, {"s"}, "slice");
  m.node("Tile", {"s", "repeats"}, {"t"}, "tile");
  m.node("Expand", {"t", "wide"}, {"e"}, "expand");
  set(m.node("Concat", {"e", "e"}, {"c"}, "concat"), "axis", int64_t{2});
  set(m.node("Transpose", {"c"}, {"y"}, "transpose"), "perm", {2, 0, 1});
  m.output("y");
  return m;
}

SampleModel attention() {
  SampleModel m;
  m.input("x", {"batch", "seq", 8});
  m.floats("w", {8, 8}, std::vector<float>(64, 0.1f));
  m.floats("scale", {8}, std::vector<float>(8, 1));
  m.floats("bias", {8}, std::vector<float>(8, 0));
  m.ints("heads", {0, 0, 2, 4});
  m.ints("merged", {0, 0, 8});
  m.node("MatMul", {"x", "w"}, {"q"}, "query");
  m.node("Reshape", {"q", "heads"}, {"h"}, "heads");
  set(m.node("Transpose", {"h"}, {"a"}, "first"), "perm", {0, 2, 1, 3});
  set(m.node("Transpose", {"h"}, {"b"}, "second"), "perm", {0, 2, 3, 1});
  m.node("MatMul", {"a", "b"}, {"scores"}, "scores");
  set(m.node("Softmax", {"scores"}, {"shares"}, "softmax"), "axis", int64_t{-1});
  m.node("MatMul", {"shares", "a"}, {"o"}, "values");
  set(m.node("Transpose", {"o"}, {"back"}, "back"), "perm", {0, 2, 1, 3});
  m.node("Reshape", {"back", "merged"}, {"r"}, "merge");
  set(m.node("LayerNormalization", {"r", "scale", "bias"}, {"y"}, "norm"), "axis", int64_t{-1});
  m.output("y");
  return m;
}

SampleModel indices() {
  SampleModel m;
  m.input("i", {"n"}, heddle::onnx::kInt64);
  m.floats("table", {16, 4}, std::vector<float>(64, 2));
  m.ints("depth", {9}).clear_dims();
  m.floats("values", {2}, {0, 1});
  m.ints("k", {2});
  m.ints("axes", {-1});
  m.node("Gather", {"table", "i"}, {"g"}, "gather");
  m.node("OneHot", {"i", "depth", "values"}, {"o"}, "hot");
  m.node("MatMul", {"o", "weights"}, {"m"}, "product");
  m.floats("weights", {9, 4}, std::vector<float>(36, 3));
  m.node("Add", {"g", "m"}, {"s"}, "sum");
  m.node("TopK", {"s", "k"}, {"y", "where"}, "top");
  m.node("ReduceSum", {"s", "axes"}, {"z"}, "reduce");
  m.output("y");
  m.output("z");
  return m;
}

SampleModel shapes() {
  SampleModel m(18);
  m.input("x", {1, 2, "h", "w"});
  m.floats("scales", {4}, {1, 1, 2, 3});
  m.ints("zero", {0}).clear_dims();
  m.ints("one", {1}).clear_dims();
  m.ints("axis", {2});
  auto& resize = m.node("Resize", {"x", "", "scales"}, {"r"}, "resize");
  set(resize, "mode", "linear");
  m.node("Shape", {"r"}, {"all"}, "shape");
  m.node("Gather", {"all", "axis"}, {"extent"}, "extent");
  m.node("Squeeze", {"extent"}, {"limit"}, "squeeze");
  m.node("Range", {"zero", "limit", "one"}, {"range"}, "range");
  m.node("ConstantOfShape", {"all"}, {"zeros"}, "zeros");
  m.node("Add", {"r", "zeros"}, {"y"}, "sum");
  set(m.node("Cast", {"range"}, {"z"}, "cast"), "to", int64_t{heddle::onnx::kFloat});
  m.output("y");
  m.output("z");
  return m;
}

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  std::string changed(SampleModel m) {
    if (below(2) == 0) {
      for (size_t i = 1 + below(2); i > 0; --i) change_number(m);
      return m.bytes();
    }
    std::string bytes = m.bytes();
    for (size_t i = 1 + below(3); i > 0; --i) change_byte(bytes);
    return bytes;
  }

 private:
  size_t below(size_t bound) { return std::uniform_int_distribution<size_t>(0, bound - 1)(random_); }

  int64_t number() {
    constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    const int64_t all[] = {0,
                           1,
                           -1,
                           2,
                           7,
                           255,
                           65536,
                           int64_t{1} << 24,
                           int64_t{1} << 31,
                           int64_t{1} << 40,
                           -2,
                           -7,
                           kLeast,
                           kMost,
                           kLeast + 1,
                           kMost - 1};
    return all[below(std::size(all))];
  }

  void change_number(SampleModel& m) {
    auto& graph = m.graph();
    if (below(2) == 0) {
      auto& tensor =
          *graph.mutable_initializer(static_cast<int>(below(static_cast<size_t>(graph.initializer_size()))));
      if (tensor.int64_data_size() > 0 && below(4) != 0) {
        tensor.set_int64_data(static_cast<int>(below(static_cast<size_t>(tensor.int64_data_size()))),
                              number());
      } else if (tensor.dims_size() > 0) {
        tensor.set_dims(static_cast<int>(below(static_cast<size_t>(tensor.dims_size()))), number());
      }
      return;
    }
    auto& node = *graph.mutable_node(static_cast<int>(below(static_cast<size_t>(graph.node_size()))));
    if (node.attribute_size() == 0) return;
    auto& attribute =
        *node.mutable_attribute(static_cast<int>(below(static_cast<size_t>(node.attribute_size()))));
    if (attribute.ints_size() > 0) {
      attribute.set_ints(static_cast<int>(below(static_cast<size_t>(attribute.ints_size()))), number());
    } else {
      attribute.set_i(number());
    }
  }

  void change_byte(std::string& bytes) {
    const size_t at = below(bytes.size());
    switch (below(3)) {
      case 0:
        bytes[at] = static_cast<char>(below(256));
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      default:
        bytes.insert(at, 1 + below(4), static_cast<char>(below(256)));
        break;
    }
  }

  std::mt19937 random_;
};

enum class End : uint8_t { values, refused };

// Symbols become 3. Numbers that a file claims of its inputs may be anything: strides of 0 need no memory.
End run(const std::string& bytes, const heddle::Device& device) {
  static const int64_t kElement = 1;
  try {
    heddle::ModelOptions options;
    options.device = device;
    const heddle::Model model = heddle::Model::load_bytes(heddle::onnx::as_bytes(bytes), options);
    std::vector<Tensor> inputs;
    for (const heddle::Port& port : model.inputs()) {
      heddle::Shape shape;
      for (const std::string& dim : port.shape) {
        const bool number = dim.find_first_not_of("0123456789") == std::string::npos;
        shape.push_back(number && dim.size() < 19 ? std::stoll(dim) : 3);
      }
      inputs.push_back(Tensor::borrow(&kElement, port.dtype, shape, heddle::Shape(shape.size(), 0)));
    }
    model(inputs);
    return End::values;
  } catch (const heddle::Error& error) {
    CHECK(std::string(error.what()) != "");
    CHECK(error.code() != heddle::ErrorCode::internal);
    return End::refused;
  }
}

uint32_t mutations() {
  const char* given = std::getenv("HEDDLE_HOSTILE_MUTATIONS");
  return given == nullptr ? 150 : static_cast<uint32_t>(std::stoul(given));
}

}  // namespace

TEST_CASE("a changed file gives values or an error of ours, from loading to the result") {
  heddle::Device device = heddle::Device::open("host", {});
  device.set_memory_fraction(static_cast<double>(64 << 20) /
                             static_cast<double>(device.stats().memory.recommended_max));
  int number = 0;
  for (const auto make : {perceptron, convolutions, movements, attention, indices, shapes}) {
    CAPTURE(++number);
    const SampleModel whole = make();
    REQUIRE(run(whole.bytes(), device) == End::values);
    uint32_t refused = 0;
    for (uint32_t seed = 0; seed < mutations(); ++seed) {
      CAPTURE(seed);
      refused += run(Mutator(seed).changed(whole), device) == End::refused ? 1 : 0;
    }
    CHECK(refused > mutations() / 4);
    CHECK(refused < mutations());
  }
}

}  // namespace hostile
