// memory_limit_test.cpp: shapes that need more memory than the device's limit are refused when they are
// compiled, by node, bytes and limit, and the refusal itself takes little memory.
#include <doctest/doctest.h>
#include <heddle/heddle.h>
#include <sys/resource.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "onnx/sample_model.h"
#include "tests/child_fixture.h"

namespace hostile {
namespace {

using heddle::DType;
using heddle::ErrorCode;
using heddle::Shape;
using heddle::Tensor;
using heddle::onnx::SampleModel;
using heddle::onnx::set;

constexpr uint64_t kLimit = uint64_t{64} << 20;
constexpr int64_t kM = int64_t{1} << 20;

heddle::Device limited_device(uint64_t limit = kLimit) {
  const heddle::DeviceOptions options;
  const heddle::Device device = heddle::Device::open("host", options);
  device.set_memory_fraction(static_cast<double>(limit) /
                             static_cast<double>(device.stats().memory.recommended_max));
  return device;
}

// An input of the model: called with `shape`, whose elements are one and the same.
struct Input {
  Shape shape;
  DType dtype = DType::f32;
};
using Ints = std::vector<int64_t>;
using Floats = std::vector<float>;
struct Scalar {
  int64_t value;
};
struct Absent {};
using Argument = std::variant<Input, Ints, Floats, Scalar, Absent>;
using Value = std::variant<int64_t, std::string, Ints>;

// One node "big" whose output is too large for what its arguments are.
struct Case {
  std::string op;
  std::vector<Argument> arguments;
  std::vector<std::pair<std::string, Value>> attributes = {};
  int64_t opset = 18;
  bool builder = true;  // GraphBuilder has an operator of that name and form
};

const std::vector<Case>& cases() {
  const Ints zeros(4096, 0);
  static const std::vector<Case> all = {
      {"Pad", {Input{{4}}, Ints{0, 1 << 30}}},
      {"Pad", {Input{{4}}, Ints{int64_t{1} << 40, 0}}},
      {"Pad", {Input{{2, 2}}, Ints{0, 0, kM, kM}}, {{"mode", std::string("edge")}}},
      {"Pad", {Input{{2, 2}, DType::i64}, Ints{0, 0, kM, 20}}},
      {"Expand", {Input{{1, 1}}, Ints{1 << 18, 1 << 18}}},
      {"Expand", {Floats{1}, Ints{1 << 30}}},
      {"Tile", {Input{{2, 2}}, Ints{1 << 18, 1 << 18}}},
      {"Tile", {Floats{1, 2}, Ints{1 << 30}}},
      {"Range", {Scalar{0}, Scalar{int64_t{1} << 40}, Scalar{1}}},
      {"ConstantOfShape", {Ints{1 << 20, 1 << 20}}},
      {"OneHot", {Input{{64}, DType::i64}, Scalar{1 << 30}, Floats{0, 1}}, {{"axis", int64_t{-1}}}},
      {"Resize",
       {Input{{1, 1, 4, 4}}, Absent{}, Floats{1, 1, 65536, 65536}},
       {{"mode", std::string("nearest")}}},
      {"Resize",
       {Input{{1, 1, 4, 4}}, Absent{}, Absent{}, Ints{1, 1, kM, kM}},
       {{"mode", std::string("linear")}}},
      {"Resize", {Input{{4}}, Absent{}, Absent{}, Ints{1 << 30}}, {{"mode", std::string("cubic")}}},
      {"Upsample", {Input{{1, 1, 4, 4}}, Floats{1, 1, 65536, 65536}}, {}, 9, false},
      {"EyeLike", {Input{{1 << 16, 1 << 16}}}, {}, 9, false},
      {"CenterCropPad", {Input{{2, 2}}, Ints{1 << 18, 1 << 18}}, {}, 18, false},
      {"Concat",
       {Input{{4 * kM}}, Input{{4 * kM}}, Input{{4 * kM}}, Input{{8 * kM}}},
       {{"axis", int64_t{0}}}},
      {"Gather", {Input{{1, 1 << 20}}, zeros}, {{"axis", int64_t{0}}}},
      {"Add", {Input{{1 << 16, 1}}, Input{{1, 1 << 16}}}},
      {"Where", {Input{{1 << 16, 1}, DType::boolean}, Input{{1, 1 << 16}}, Floats{0}}},
      {"MatMul", {Input{{1 << 16, 1}}, Input{{1, 1 << 16}}}},
      {"Cast", {Input{{10 * kM}, DType::u8}}, {{"to", int64_t{11}}}, 18, false},
      {"Einsum", {Input{{1 << 16}}, Input{{1 << 16}}}, {{"equation", std::string("i,j->ij")}}, 18, false},
      {"Conv", {Input{{1, 1, 2, 2}}, Input{{1, 1, 1, 1}}}, {{"pads", Ints{kM, kM, kM, kM}}}},
      {"ConvTranspose", {Input{{1, 1, 64, 64}}, Input{{1, 1, 1, 1}}}, {{"strides", Ints{1 << 14, 1 << 14}}}},
      {"Col2Im",
       {Input{{1, 1, 1}}, Ints{1 << 17, 1 << 17}, Ints{1, 1}},
       {{"strides", Ints{1 << 17, 1 << 17}}}},
      {"RoiAlign",
       {Input{{1, 1, 4, 4}}, Input{{1, 4}}, Input{{1}, DType::i64}},
       {{"output_height", kM},
        {"output_width", kM},
        {"coordinate_transformation_mode", std::string("half_pixel")}}},
      {"AffineGrid", {Input{{1, 2, 3}}, Ints{1, 1, 1 << 17, 1 << 17}}, {}, 20, false},
      {"HannWindow", {Scalar{int64_t{1} << 40}}, {}, 17, false},
      {"HammingWindow", {Scalar{1 << 30}}, {}, 17, false},
      {"BlackmanWindow", {Scalar{1 << 30}}, {}, 17, false},
      {"DFT", {Input{{1, 16, 1}}, Scalar{1 << 20}}, {}, 17, false},
      {"STFT", {Input{{1, 1 << 16}}, Scalar{1}, Absent{}, Scalar{1 << 15}}, {}, 17, false},
  };
  return all;
}

bool is_input(const Argument& argument) { return std::holds_alternative<Input>(argument); }

int onnx_type(DType dtype) {
  using Proto = heddle::onnx::proto::TensorProto;
  switch (dtype) {
    case DType::i64:
      return Proto::INT64;
    case DType::u8:
      return Proto::UINT8;
    case DType::boolean:
      return Proto::BOOL;
    default:
      return Proto::FLOAT;
  }
}

SampleModel onnx_model(const Case& c) {
  SampleModel m(c.opset);
  std::vector<std::string> names;
  for (const Argument& argument : c.arguments) {
    const std::string name = "a" + std::to_string(names.size());
    names.push_back(std::holds_alternative<Absent>(argument) ? "" : name);
    if (const auto* input = std::get_if<Input>(&argument)) {
      std::vector<SampleModel::Dim> dims;
      for (const int64_t extent : input->shape) {
        const bool fixed = extent <= 4;  // filters and the like have to be known
        dims.push_back(fixed ? SampleModel::Dim(extent) : name + "_" + std::to_string(dims.size()));
      }
      m.input(name, dims, onnx_type(input->dtype));
    }
    if (const auto* ints = std::get_if<Ints>(&argument)) m.ints(name, *ints);
    if (const auto* scalar = std::get_if<Scalar>(&argument)) m.ints(name, {scalar->value}).clear_dims();
    if (const auto* floats = std::get_if<Floats>(&argument)) {
      m.floats(name, {static_cast<int64_t>(floats->size())}, *floats);
    }
  }
  auto& node = m.node(c.op, names, {"y"}, "big");
  for (const auto& attribute : c.attributes) {
    const std::string& name = attribute.first;
    if (const auto* number = std::get_if<int64_t>(&attribute.second)) set(node, name, *number);
    if (const auto* ints = std::get_if<Ints>(&attribute.second)) set(node, name, *ints);
    if (const auto* word = std::get_if<std::string>(&attribute.second)) set(node, name, word->c_str());
  }
  m.output("y").clear_type();
  return m;
}

heddle::Model load(const SampleModel& m, const heddle::Device& device) {
  heddle::ModelOptions options;
  options.device = device;
  const std::string bytes = m.bytes();
  return heddle::Model::load_bytes(heddle::onnx::as_bytes(bytes), options);
}

heddle::Model build(const Case& c, const heddle::Device& device) {
  heddle::GraphBuilder graph("one_node");
  std::vector<heddle::GraphBuilder::Value> values;
  for (const Argument& argument : c.arguments) {
    const std::string name = "a" + std::to_string(values.size());
    heddle::GraphBuilder::Value value = heddle::GraphBuilder::absent();
    if (const auto* input = std::get_if<Input>(&argument)) {
      std::vector<heddle::GraphBuilder::DimArgument> dims;
      for (const int64_t extent : input->shape) {
        if (extent <= 4) {
          dims.emplace_back(extent);
        } else {
          dims.emplace_back(name + "_" + std::to_string(dims.size()));
        }
      }
      value = graph.input(name, input->dtype, dims);
    }
    if (const auto* ints = std::get_if<Ints>(&argument))
      value = graph.constant(Tensor::of<int64_t>({static_cast<int64_t>(ints->size())}, std::span(*ints)));
    if (const auto* floats = std::get_if<Floats>(&argument))
      value = graph.constant(Tensor::of<float>({static_cast<int64_t>(floats->size())}, std::span(*floats)));
    if (const auto* scalar = std::get_if<Scalar>(&argument))
      value = graph.constant(Tensor::of<int64_t>({}, {scalar->value}));
    values.push_back(value);
  }
  heddle::AttributeList attributes;
  for (const auto& [name, value] : c.attributes) {
    std::visit([&, &key = name](const auto& v) { attributes.emplace_back(key, v); }, value);
  }
  graph.output(graph.add(c.op, values, attributes, "big"), "y");
  heddle::ModelOptions options;
  options.device = device;
  return graph.build(options);
}

// The message of the refusal; another kind of error fails the test.
template <class Make>
std::string refusal(const Case& c, const Make& make) {
  static const int64_t kElement = 0;
  std::vector<Tensor> inputs;
  for (const Argument& argument : c.arguments) {
    if (!is_input(argument)) continue;
    const Input& input = std::get<Input>(argument);
    inputs.push_back(Tensor::borrow(&kElement, input.dtype, input.shape, Shape(input.shape.size(), 0)));
  }
  try {
    const heddle::Model model = make();
    model(inputs);
  } catch (const heddle::Error& error) {
    CHECK_MESSAGE(error.code() == ErrorCode::exhausted, error.what());
    return error.what();
  }
  FAIL_CHECK("it ran");
  return "";
}

void check_message(const std::string& said) {
  CAPTURE(said);
  for (const char* word : {"'big", "bytes", "memory limit"}) {
    CAPTURE(word);
    CHECK(said.find(word) != std::string::npos);
  }
}

uint64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
#if defined(__APPLE__)
  return static_cast<uint64_t>(usage.ru_maxrss);
#else
  return static_cast<uint64_t>(usage.ru_maxrss) << 10;
#endif
}

// Of this process, for good. Where the system hands out more than it has, an allocation fails only so.
void limit_address_space() {
  if (heddle::test::kSanitized) return;  // whose shadow takes terabytes
  const rlimit most{rlim_t{4} << 30, rlim_t{4} << 30};
  REQUIRE(setrlimit(RLIMIT_AS, &most) == 0);
}

}  // namespace

TEST_CASE("every operator that makes much of little: each case" * doctest::skip()) {
  limit_address_space();
  const heddle::Device device = limited_device();
  const uint64_t before = peak_bytes();
  for (const Case& c : cases()) {
    CAPTURE(c.op);
    INFO("from ONNX");
    check_message(refusal(c, [&] { return load(onnx_model(c), device); }));
  }
  for (const Case& c : cases()) {
    if (!c.builder) continue;
    CAPTURE(c.op);
    INFO("from GraphBuilder");
    check_message(refusal(c, [&] { return build(c, device); }));
  }
  // Folding at load is bounded by itself, whatever the limit: by 2^25 elements.
  CHECK(peak_bytes() - before < uint64_t{768} << 20);
}

// In a process of its own: the peak is the process's, and other cases may have had a higher one.
TEST_CASE("every operator that makes much of little is refused by node, bytes and limit, in bounded memory") {
  const auto child = heddle::test::run_child("every operator that makes much of little: each case", {},
                                             std::chrono::seconds(300));
  CHECK_MESSAGE(child.exit_code == 0, child.said);
  CHECK_FALSE(child.hung);
}

TEST_CASE("a Loop's stacked output beyond the limit is refused") {
  SampleModel m(17);
  m.input("x", {"n"});
  m.ints("trips", {1 << 24}).clear_dims();
  auto& node = m.node("Loop", {"trips", "", "x"}, {"last", "y"}, "big");
  auto& attribute = *node.add_attribute();
  attribute.set_name("body");
  attribute.set_type(heddle::onnx::proto::AttributeProto::GRAPH);
  SampleModel body(17);
  body.input("i", {}, heddle::onnx::kInt64);
  body.input("goes_on", {}, heddle::onnx::proto::TensorProto::BOOL);
  body.input("carried", {"n"});
  body.node("Identity", {"goes_on"}, {"still"});
  body.node("Relu", {"carried"}, {"next"});
  body.node("Neg", {"carried"}, {"scan"});
  body.output("still", heddle::onnx::proto::TensorProto::BOOL);
  body.output("next");
  body.output("scan");
  *attribute.mutable_g() = body.graph();
  m.output("y");
  const Case c{"Loop", {Input{{64}}}};
  check_message(refusal(c, [&] { return load(m, limited_device()); }));
}

TEST_CASE("intermediates and weights count, and not the largest tensor alone") {
  const heddle::Device device = limited_device();
  SUBCASE("intermediates alive at once") {
    SampleModel m;
    m.input("x", {"n"});
    m.ints("axis", {0}).clear_dims();
    m.node("Softmax", {"x"}, {"a"}, "big");
    m.node("CumSum", {"x", "axis"}, {"b"}, "big");
    m.node("LogSoftmax", {"x"}, {"c"}, "big");
    m.node("Add", {"a", "b"}, {"d"});
    m.node("Add", {"d", "c"}, {"e"});
    m.node("ReduceSum", {"e"}, {"y"});
    m.output("y");
    const Case c{"", {Input{{6 * kM}}}};
    const std::string said = refusal(c, [&] { return load(m, device); });
    CHECK_MESSAGE(said.find("between nodes") != std::string::npos, said);
    CHECK_MESSAGE(said.find("memory limit") != std::string::npos, said);
  }
  SUBCASE("weights") {
    SampleModel m;
    m.input("x", {"n", 1});
    m.floats("w", {1, 10 * kM}, Floats(10 * kM, 1));
    m.node("Add", {"x", "w"}, {"y"}, "big");
    m.output("y");
    const Case c{"", {Input{{1, 1}}}};
    const std::string said = refusal(c, [&] { return load(m, device); });
    check_message(said);
    CHECK_MESSAGE(said.find("of weights") != std::string::npos, said);
  }
}

TEST_CASE("a refused shape keeps no other from running, and runs once the limit allows it") {
  const heddle::Device device = limited_device();
  SampleModel m;
  m.input("x", {"n"});
  m.ints("wide", {20 * kM, 1});
  m.node("Expand", {"x", "wide"}, {"y"}, "big");
  m.output("y");
  const heddle::Model model = load(m, device);
  const auto x = Tensor::of<float>({1}, {3});
  const auto refused = [&] {
    try {
      model({x});
    } catch (const heddle::Error& error) {
      return error.code() == ErrorCode::exhausted;
    }
    return false;
  };
  CHECK(refused());
  CHECK(refused());
  device.set_memory_fraction(1);
  const auto y = model({x})[0].values<float>();
  CHECK(y.size() == static_cast<size_t>(20 * kM));
  CHECK(y.front() == 3);
  CHECK(y.back() == 3);
}

TEST_CASE("a tensor no memory can hold: each way to ask for one" * doctest::skip()) {
  limit_address_space();
  const auto code = [](const auto& make) {
    try {
      make();
    } catch (const heddle::Error& error) {
      return error.code();
    }
    return ErrorCode::internal;
  };
  CHECK(code([] { Tensor::zeros(DType::u8, {int64_t{1} << 46}); }) == ErrorCode::exhausted);
  CHECK(code([] { Tensor::zeros(DType::u8, {int64_t{1} << 47}); }) == ErrorCode::invalid);
  static const float kOne = 1;
  const Tensor huge = Tensor::borrow(&kOne, DType::f32, {int64_t{1} << 22, int64_t{1} << 22}, {0, 0});
  CHECK(code([&] { huge.contiguous(); }) == ErrorCode::exhausted);
  heddle::GraphBuilder graph("constants");
  CHECK(code([&] { graph.constant(huge); }) == ErrorCode::exhausted);
}

TEST_CASE(
    "a tensor no memory can hold is refused by Tensor::zeros and a builder's constants, without an end") {
  const auto child = heddle::test::run_child("a tensor no memory can hold: each way to ask for one", {},
                                             std::chrono::seconds(60));
  CHECK_MESSAGE(child.exit_code == 0, child.said);
  CHECK_FALSE(child.hung);
}

}  // namespace hostile
