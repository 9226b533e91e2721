// Chains of element-wise operators: how many launches they are, and whose bits they have.
#include <doctest/doctest.h>

#include "device/plain_source_fixture.h"
#include "drivers/cuda/cuda_device.h"
#include "drivers/cuda/program.h"
#include "ir/builder.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/driver_conformance/session_fixture.h"

namespace heddle::cuda {
namespace {

using ir::Builder;
using ir::DType;
using ir::ValueId;
using Operators = std::vector<ValueId>;

struct Ran {
  size_t launches = 0;
  std::string kernel;  // of the first
  std::vector<ir::Tensor> outputs;
};

Ran ran(Builder b, const std::vector<ir::Tensor>& inputs) {
  const auto device = make_cuda_device({.api = &cuda_double::api(), .image = cuda_double::image()});
  REQUIRE(device.ok());
  const auto module = (*device)->load(*b.take(), {}, device::plain_source(**device), NoLocksHeld());
  REQUIRE_MESSAGE(module.ok(), to_string(module.status()));
  const auto program = conformance::compile(**module, inputs);
  REQUIRE_MESSAGE(program.ok(), to_string(program.status()));
  const auto got = conformance::Session(**device).run(*program, inputs);
  REQUIRE_MESSAGE(got.ok(), to_string(got.status()));
  const std::vector<Step>& steps = static_cast<const CudaProgram&>(**program).lowered().steps;
  return {steps.size(), std::get<Launch>(steps[0]).kernel->name, *got};
}

// One node of that body.
Ran ran_as_chain(Builder body, const std::vector<ir::Tensor>& inputs, size_t outputs) {
  Builder b;
  Operators in;
  for (size_t i = 0; i < inputs.size(); ++i) in.push_back(b.input(text("in", i), inputs[i].type()));
  const auto attribute = std::make_shared<const ir::Graph>(*body.take());
  const Operators made = *b.nodes("Elementwise", in, outputs, {{"body", attribute}}, "chain");
  for (const ValueId id : made) b.output(id);
  return ran(std::move(b), inputs);
}

// What `make` adds last is the output. With `apart` all of it are, so that the plan fuses nothing.
Builder graph_of(Operators (*make)(Builder&, const Operators&), const std::vector<ir::Tensor>& inputs,
                 bool apart) {
  Builder b;
  Operators in;
  for (size_t i = 0; i < inputs.size(); ++i) in.push_back(b.input(text("in", i), inputs[i].type()));
  const Operators made = make(b, in);
  b.output(made.back());
  for (size_t i = 0; apart && i + 1 < made.size(); ++i) b.output(made[i]);
  return b;
}

Operators five(Builder& b, const Operators& in) {
  Operators made{*b.node("Add", {in[0], in[1]})};
  for (const char* op : {"Tanh", "Sigmoid"}) made.push_back(*b.node(op, {made.back()}));
  made.push_back(*b.node("Mul", {made.back(), in[2]}));
  made.push_back(*b.node("Sub", {made.back(), in[0]}));
  return made;
}

Operators with_bools(Builder& b, const Operators& in) {
  Operators made{*b.node("Less", {in[0], in[1]})};
  made.push_back(*b.node("Greater", {in[0], in[2]}));
  made.push_back(*b.node("Xor", {made[0], made[1]}));
  made.push_back(*b.node("Exp", {in[0]}));
  made.push_back(*b.node("Where", {made[2], made[3], in[1]}));
  made.push_back(*b.node("Cast", {made.back()}, {{"to", std::string("u8")}}));
  return made;
}

Operators twenty(Builder& b, const Operators& in) {
  Operators made{*b.node("Mul", {in[0], in[1]})};
  for (int i = 0; i < 19; ++i)
    made.push_back(*b.node(
        i % 2 == 0 ? "Softsign" : "Add",
        {i % 2 == 0 ? Operators{made.back()} : Operators{made.back(), i % 4 == 1 ? made[0] : in[2]}}));
  return made;
}

TEST_CASE("a chain is one launch and has the bits of a launch for each operator") {
  struct Chain {
    const char* what;
    Operators (*make)(Builder&, const Operators&);
    size_t operators;
  };
  for (const Chain& chain :
       {Chain{"five operators", five, 5}, {"bools", with_bools, 6}, {"twenty", twenty, 20}}) {
    CAPTURE(std::string(chain.what));
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      CAPTURE(std::string(ir::name(dtype)));
      for (const ir::Extents& extents : {ir::Extents{3, 40}, {5, 33, 65}, {2, 64, 64}}) {
        const ir::Extents row{extents[extents.rank() - 1]}, column{extents[extents.rank() - 2], 1};
        const std::vector<ir::Tensor> inputs = {conformance::random_tensor(dtype, extents, 1),
                                                conformance::random_tensor(dtype, row, 2),
                                                conformance::random_tensor(dtype, column, 3)};
        const Ran fused = ran_as_chain(graph_of(chain.make, inputs, false), inputs, 1),
                  apart = ran(graph_of(chain.make, inputs, true), inputs);
        CHECK(fused.launches == 1);
        CHECK(apart.launches == chain.operators);
        CHECK(conformance::same_bits(fused.outputs[0], apart.outputs[0]));
      }
    }
  }
}

TEST_CASE("an operator by itself is a chain, but for types that no program computes in") {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI32, DType::kF64, DType::kU64}) {
    CAPTURE(std::string(ir::name(dtype)));
    const ir::Tensor x = conformance::random_tensor(dtype, {3, 4}, 1, 1, 9);
    Builder b;
    const ValueId in = b.input("x", x.type());
    b.output(*b.node("Div", {in, in}));
    const Ran got = ran(std::move(b), {x});
    CHECK(got.launches == 1);
    CHECK(got.kernel.starts_with("chain_") == (dtype != DType::kF64 && dtype != DType::kU64));
  }
}

TEST_CASE("a chain that needs more than one launch has is cut into as few as do") {
  const ir::Extents extents{3, 7};
  const auto tensor = [&](uint32_t seed) { return conformance::random_tensor(DType::kF32, extents, seed); };
  struct Cut {
    const char* what;
    int inputs, steps, outputs;  // the sum of the inputs, `steps` times one more, and so many of the sums
    size_t launches;
  };
  for (const Cut& cut : {Cut{"as many steps as fit", 2, 47, 1, 1},
                         {"more steps", 2, 100, 1, 3},
                         {"as many inputs as fit", 12, 0, 1, 1},
                         {"more inputs", 20, 0, 1, 2},
                         {"as many outputs as fit", 2, 7, 8, 1},
                         {"more outputs", 2, 9, 10, 2}}) {
    CAPTURE(cut.what);
    Builder b;
    Operators in;
    std::vector<ir::Tensor> inputs;
    for (int i = 0; i < cut.inputs; ++i) {
      inputs.push_back(tensor(static_cast<uint32_t>(i)));
      in.push_back(b.input(text("in", i), inputs.back().type()));
    }
    ValueId sum = in[0];
    std::vector<double> wanted{inputs[0].get(5)};
    for (int i = 1; i < cut.inputs; ++i) {
      sum = *b.node("Add", {sum, in[static_cast<size_t>(i)]});
      wanted.back() = static_cast<float>(wanted.back() + inputs[static_cast<size_t>(i)].get(5));
    }
    std::vector<ValueId> sums{sum};
    const ValueId one = b.constant(ir::Tensor::scalar(DType::kF32, 1));
    for (int i = 0; i < cut.steps; ++i) {
      sums.push_back(*b.node("Add", {sums.back(), one}));
      wanted.push_back(static_cast<float>(wanted.back() + 1));
    }
    const size_t first = sums.size() - static_cast<size_t>(cut.outputs);
    for (size_t i = first; i < sums.size(); ++i) b.output(sums[i]);
    const Ran got = ran_as_chain(std::move(b), inputs, static_cast<size_t>(cut.outputs));
    CHECK(got.launches == cut.launches);
    REQUIRE(got.outputs.size() == static_cast<size_t>(cut.outputs));
    for (size_t i = 0; i < got.outputs.size(); ++i) CHECK(got.outputs[i].get(5) == wanted[first + i]);
  }
}

TEST_CASE("more values at once than a launch has registers are cut") {
  Builder b;
  const ir::Tensor x = conformance::random_tensor(DType::kF32, {50}, 1);
  const ValueId in = b.input("x", x.type());
  Operators live;
  for (int i = 0; i < 20; ++i)
    live.push_back(*b.node("Add", {in, b.constant(ir::Tensor::scalar(DType::kF32, i % 10))}));
  ValueId sum = live[0];
  float wanted = x.as<float>()[7];
  for (size_t i = 1; i < live.size(); ++i) {
    sum = *b.node("Add", {sum, live[i]});
    wanted += x.as<float>()[7] + static_cast<float>(i % 10);
  }
  b.output(sum);
  const Ran got = ran_as_chain(std::move(b), {x}, 1);
  CHECK(got.launches > 1);
  CHECK(got.launches <= 4);
  CHECK(got.outputs[0].as<float>()[7] == wanted);
}

TEST_CASE("what a program does not compute in has launches of its own, in the middle of a chain") {
  Builder b;
  const ir::Tensor x = conformance::random_tensor(DType::kF32, {6, 5}, 1, 0, 9),
                   k = conformance::random_tensor(DType::kI64, {5}, 2, 0, 9);
  const ValueId in = b.input("x", x.type()), counts = b.input("k", k.type());
  const ValueId whole = *b.node("Cast", {*b.node("Mul", {in, in})}, {{"to", std::string("i64")}});
  const ValueId rest = *b.node("Mod", {*b.node("Add", {whole, counts}), b.constant(ir::Tensor::of_i64({7}))});
  b.output(*b.node("Sqrt", {*b.node("Cast", {rest}, {{"to", std::string("f32")}})}));
  const Ran got = ran_as_chain(std::move(b), {x, k}, 1);
  CHECK(got.launches == 3);  // floats, integers, floats
  for (int64_t i = 0; i < 30; ++i) {
    const float each = x.as<float>()[i];
    CHECK(got.outputs[0].as<float>()[i] ==
          std::sqrt(static_cast<float>((static_cast<int64_t>(each * each) + k.get_i64(i % 5)) % 7)));
  }
}

}  // namespace
}  // namespace heddle::cuda
