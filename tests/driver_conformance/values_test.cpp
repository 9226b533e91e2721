#include <algorithm>
#include <map>
#include <set>

#include "device/plain_source_fixture.h"
#include "driver_fixture.h"
#include "ir/builder.h"
#include "ir/op.h"
#include "op_check_fixture.h"
#include "session_fixture.h"

namespace heddle::conformance {
namespace {

// Whether an operand or result is of a type that the driver does not have.
bool cannot_type(std::string_view driver, const Operands& operands) {
  const auto& values = operands.graph.values;
  return std::any_of(values.begin(), values.end(),
                     [&](const ir::Value& v) { return cannot(driver, text("type ", v.type.dtype)); });
}

void check_case_of_driver(device::Device& device, const Driver& driver, const Case& c,
                          const Result<Operands>& operands) {
  const Status status = operands.ok() ? check_operands(device, *operands) : operands.status();
  if (cannot(driver.name, text("op ", c.op)) || (operands.ok() && cannot_type(driver.name, *operands))) {
    CHECK_MESSAGE(status.code() == Code::unsupported, "the exemption is stale: ", to_string(status));
  } else {
    CHECK_MESSAGE(status.ok(), to_string(status));
  }
}

// Every second case, from `first` on: the reference computes it once for all drivers and kinds of memory.
void check_every_second_case(const std::vector<Ref<device::Device>>& devices, size_t first) {
  const std::vector<Case> cases = all_cases();
  size_t checked = 0;
  for (size_t i = first; i < cases.size(); i += 2) {
    for (DType dtype : cases[i].dtypes) {
      CAPTURE(std::string(cases[i].op));
      CAPTURE(i);
      CAPTURE(std::string(ir::name(dtype)));
      const Result<Operands> operands = make_operands(cases[i], dtype);
      for (size_t at = 0; at < devices.size(); ++at) {
        CAPTURE(drivers()[at].name);
        for_each_kind(*devices[at],
                      [&] { check_case_of_driver(*devices[at], drivers()[at], cases[i], operands); });
      }
      ++checked;
    }
  }
  CHECK(checked > 500);
}

TEST_CASE("every operator gives the reference's values, contiguous and strided, in every element type") {
  size_t first = 0;  // of every second case: two processes can have a half each
  SUBCASE("even cases") {}
  SUBCASE("odd cases") { first = 1; }
  std::vector<Ref<device::Device>> devices;
  for (const Driver& driver : drivers()) {
    auto device = driver.make();
    REQUIRE_MESSAGE(device.ok(), to_string(device.status()));
    devices.push_back(*std::move(device));
  }
  check_every_second_case(devices, first);
  for (const Ref<device::Device>& device : devices) {
    const Status lost = device->lost();
    CHECK_MESSAGE(lost.ok(), to_string(lost));
  }
}

DRIVER_TEST(chains, "chains of element-wise operators give the reference's values") {
  for (const Case& each : all_cases()) {
    if (each.op != "Elementwise") continue;
    for (const DType dtype : each.dtypes)
      check_case_of_driver(device, driver, each, make_operands(each, dtype));
  }
  return {};
}

TEST_CASE("every operator of the ir has a case here, and every exemption names a driver and a test") {
  std::set<std::string_view> covered;
  for (const Case& c : all_cases()) covered.insert(c.op);
  for (const ir::OpDef* op : ir::all_ops())
    CHECK_MESSAGE(covered.contains(op->name), std::string(op->name), " has no case");
  check_exemptions();
}

// Rows of different lengths, one module: what was packed for one shape serves the others.
DRIVER_TEST(ragged_shapes, "one module serves ragged shapes with the reference's values") {
  ir::Builder b;
  const ir::ValueId x = b.input("x", {DType::kF32, {ir::Dim::symbol("batch"), ir::Dim::symbol("seq"), 48}});
  const ir::ValueId w = b.constant(random_tensor(DType::kF32, {48, 144}, 1, -0.3, 0.3)),
                    bias = b.constant(random_tensor(DType::kF32, {144}, 2));
  const ir::ValueId qkv = *b.node("Linear", {x, w, bias});
  const ir::ValueId attended =
      *b.node("Attention", {qkv}, {{"num_heads", int64_t{4}}, {"packed", int64_t{1}}});
  const ir::ValueId scale = b.constant(random_tensor(DType::kF32, {48}, 3));
  b.output(*b.node("LayerNormalization", {*b.node("Add", {attended, x}), scale}));
  HEDDLE_TRY_ASSIGN(const ir::Graph graph, b.take());
  HEDDLE_TRY_ASSIGN(const auto module, device.load(graph, {}, device::plain_source(device), NoLocksHeld()));
  Session session(device);
  for (const int64_t batch : {1, 3, 0, 8}) {
    for (const int64_t seq : {1, 2, 31, 32, 33, 0, 130}) {
      const std::vector<ir::Tensor> inputs = {
          random_tensor(DType::kF32, {batch, seq, 48}, static_cast<uint32_t>(seq))};
      HEDDLE_TRY_ASSIGN(const auto program, compile(*module, inputs));
      HEDDLE_TRY_ASSIGN(const auto got, session.run(program, inputs));
      HEDDLE_TRY_ASSIGN(const auto wanted, ir::evaluate(graph, inputs));
      CHECK(difference(got[0], wanted[0], {1e-4, 1e-4}) == "");
    }
  }
  return {};
}

DRIVER_TEST(windows_in_a_row, "convolutions, pools and residuals in a row keep the reference's values") {
  ir::Builder b;
  const auto constant = [&](const Extents& e, uint32_t seed) {
    return b.constant(random_tensor(DType::kF32, e, seed, -0.4, 0.4));
  };
  const ir::ValueId x = b.input("x", {DType::kF32, {ir::Dim::symbol("batch"), 3, 18, 14}});
  const ir::Attributes same = {{"pads", std::vector<int64_t>{1, 1, 1, 1}},
                               {"activation", std::string("relu")}};
  const ir::ValueId a = *b.node("Conv", {x, constant({8, 3, 3, 3}, 1), constant({8}, 2)}, same);
  const ir::ValueId p =
      *b.node("MaxPool", {a},
              {{"kernel_shape", std::vector<int64_t>{2, 2}}, {"strides", std::vector<int64_t>{2, 2}}});
  const ir::ValueId c = *b.node("Conv", {p, constant({8, 8, 3, 3}, 3)}, same);
  const ir::ValueId d = *b.node("Conv", {c, constant({8, 8, 3, 3}, 4), constant({8}, 5), p}, same);
  b.output(d);
  const ir::ValueId e =
      *b.node("Conv", {d, constant({24, 8, 1, 1}, 6)}, {{"strides", std::vector<int64_t>{2, 2}}});
  b.output(*b.node("GlobalAveragePool",
                   {*b.node("AveragePool", {e}, {{"kernel_shape", std::vector<int64_t>{2, 2}}})}));
  // 27 x 21 are in reach of the last input.
  const std::vector<int64_t> three = {3, 3}, near = {28, 23}, far = {30, 24};
  for (const std::vector<int64_t>& extents : {near, far}) {
    const ir::ValueId f = *b.node("ConvTranspose", {d, constant({8, 8, 3, 3}, 7)},
                                  {{"strides", three}, {"output_shape", extents}});
    b.output(*b.node("MaxPool", {f}, {{"kernel_shape", three}}));
  }
  HEDDLE_TRY_ASSIGN(const ir::Graph graph, b.take());
  HEDDLE_TRY_ASSIGN(const auto module, device.load(graph, {}, device::plain_source(device), NoLocksHeld()));
  Session session(device);
  for (const int64_t batch : {1, 2, 5}) {
    const std::vector<ir::Tensor> inputs = {random_tensor(DType::kF32, {batch, 3, 18, 14}, 9)};
    HEDDLE_TRY_ASSIGN(const auto program, compile(*module, inputs));
    HEDDLE_TRY_ASSIGN(const auto got, session.run(program, inputs));
    HEDDLE_TRY_ASSIGN(const auto wanted, ir::evaluate(graph, inputs));
    for (size_t i = 0; i < got.size(); ++i) CHECK(difference(got[i], wanted[i], {1e-4, 1e-4}) == "");
  }
  return {};
}

DRIVER_TEST(computed_weights, "what a convolution or a pool makes may be another's weight") {
  ir::Builder b;
  const std::vector<int64_t> two = {2, 2};
  const ir::ValueId x = b.input("x", {DType::kF32, {2, 4, 9, 8}}),
                    t = b.input("t", {DType::kF32, {5, 3, 6, 5}});
  const ir::ValueId c = b.constant(random_tensor(DType::kF32, {4, 3, 3, 3}, 1, -0.4, 0.4));
  const ir::ValueId made = *b.node("Conv", {t, c}),
                    pooled = *b.node("MaxPool", {made}, {{"kernel_shape", two}});
  for (const ir::ValueId weight : {made, pooled, *b.node("Relu", {made})}) {
    b.output(*b.node("Conv", {x, weight}));
    const ir::ValueId y = b.input("y" + std::to_string(weight), {DType::kF32, {1, 5, 4, 3}});
    b.output(*b.node("ConvTranspose", {y, weight}));
  }
  b.output(*b.node("Conv", {made, made}));
  HEDDLE_TRY_ASSIGN(const ir::Graph graph, b.take());
  HEDDLE_TRY_ASSIGN(const auto module, device.load(graph, {}, device::plain_source(device), NoLocksHeld()));
  std::vector<ir::Tensor> inputs;
  for (const ir::ValueId id : graph.inputs) {
    const ir::Shape& shape = graph.type(id).shape;
    std::vector<int64_t> extents;
    for (const ir::Dim& dim : shape) extents.push_back(dim.value());
    inputs.push_back(random_tensor(DType::kF32, Extents(extents), static_cast<uint32_t>(id)));
  }
  HEDDLE_TRY_ASSIGN(const auto program, compile(*module, inputs));
  Session session(device);
  HEDDLE_TRY_ASSIGN(const auto got, session.run(program, inputs));
  HEDDLE_TRY_ASSIGN(const auto wanted, ir::evaluate(graph, inputs));
  for (size_t i = 0; i < got.size(); ++i) CHECK(difference(got[i], wanted[i], {1e-4, 1e-4}) == "");
  return {};
}

DRIVER_TEST(outputs_of_every_kind,
            "an output may be an input, a constant, a renamed value or the same value twice") {
  ir::Builder b;
  const ir::ValueId x = b.input("x", {DType::kF32, {2, 3}}), unused = b.input("unused", {DType::kI64, {1}});
  const ir::ValueId c = b.constant(random_tensor(DType::kF32, {4}, 1)),
                    shape = b.constant(ir::Tensor::of_i64({3, 2}));
  const ir::ValueId y = *b.node("Add", {x, x}), renamed = *b.node("Reshape", {y, shape}),
                    renamed_input = *b.node("Reshape", {x, shape});
  for (ir::ValueId id : {x, c, y, y, renamed, renamed_input, unused}) b.output(id);
  HEDDLE_TRY_ASSIGN(const ir::Graph graph, b.take());
  HEDDLE_TRY_ASSIGN(const auto module, device.load(graph, {}, device::plain_source(device), NoLocksHeld()));
  const std::vector<ir::Tensor> inputs = {random_tensor(DType::kF32, {2, 3}, 5),
                                          random_tensor(DType::kI64, {1}, 5)};
  HEDDLE_TRY_ASSIGN(const auto program, compile(*module, inputs));
  HEDDLE_TRY_ASSIGN(const auto got, Session(device).run(program, inputs));
  HEDDLE_TRY_ASSIGN(const auto wanted, ir::evaluate(graph, inputs));
  REQUIRE(got.size() == 7);
  for (size_t i = 0; i < got.size(); ++i) CHECK(same_bits(got[i], wanted[i]));
  return {};
}

DRIVER_TEST(one_view_for_two_inputs, "the same memory may be given for two inputs") {
  ir::Builder b;
  const ir::ValueId x = b.input("x", {DType::kF32, {2, 3}}), y = b.input("y", {DType::kF32, {2, 3}});
  b.output(*b.node("Mul", {x, y}));
  HEDDLE_TRY_ASSIGN(const auto module,
                    device.load(*b.take(), {}, device::plain_source(device), NoLocksHeld()));
  const ir::Tensor tensor = random_tensor(DType::kF32, {2, 3}, 5);
  HEDDLE_TRY_ASSIGN(const auto program, compile(*module, {tensor, tensor}));
  const device::View view = upload(device, tensor);
  HEDDLE_TRY_ASSIGN(const auto got, Session(device).run(program, std::vector<device::View>{view, view}));
  for (int64_t i = 0; i < 6; ++i)
    CHECK(got[0].as<float>()[i] == tensor.as<float>()[i] * tensor.as<float>()[i]);
  return {};
}

}  // namespace
}  // namespace heddle::conformance
