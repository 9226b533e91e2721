// Chains that NVRTC compiles: whose bits they have, and which of them share a source.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>

#include "drivers/cuda/libraries/nvrtc.h"
#include "tests/cuda_driver/compiled_chain_fixture.h"
#include "tests/driver_conformance/op_check_fixture.h"

namespace heddle::cuda {
namespace {

using namespace compiled_chain_fixture;  // NOLINT: words of these tests
using conformance::random_tensor;
using ir::DType;
using ir::Extents;
using ir::ValueId;

// One node that holds a body, over inputs of these extents, all of `dtype`.
ChainModel elementwise_of(DType dtype, const std::vector<Extents>& extents,
                          std::vector<ValueId> (*make)(ir::Builder&, const std::vector<ValueId>&),
                          double low = -2, double high = 2) {
  ir::Builder body, b;
  ChainModel made;
  std::vector<ValueId> inner, outer;
  for (size_t i = 0; i < extents.size(); ++i) {
    made.inputs.push_back(random_tensor(dtype, extents[i], static_cast<uint32_t>(i) + 1, low, high));
    inner.push_back(body.input(text("in", i), made.inputs.back().type()));
    outer.push_back(b.input(text("in", i), made.inputs.back().type()));
  }
  const std::vector<ValueId> results = make(body, inner);
  for (const ValueId id : results) body.output(id);
  const auto attribute = std::make_shared<const ir::Graph>(*body.take());
  const std::vector<ValueId> chain =
      *b.nodes("Elementwise", outer, results.size(), {{"body", attribute}}, "chain");
  for (const ValueId id : chain) b.output(id);
  made.graph = *b.take();
  return made;
}

// Every operator of floats, and numbers of attributes that are no flags.
std::vector<ValueId> all_of_floats(ir::Builder& b, const std::vector<ValueId>& in) {
  ValueId x = in[0];
  std::vector<ValueId> results;
  for (const char* op : {"Sin", "Cos", "Sigmoid", "Erf", "Gelu", "Softplus", "Softsign", "HardSwish", "Silu",
                         "Abs", "Sqrt", "Log", "Exp", "Tanh", "Asinh", "Atan", "Floor", "Neg", "Round"})
    x = *b.node("Add", {*b.node(op, {x}), in[1]});
  results.push_back(x);
  x = *b.node("LeakyRelu", {in[0]}, {{"alpha", 0.3}});
  x = *b.node("Elu", {x}, {{"alpha", 1.0}});
  x = *b.node("HardSigmoid", {x}, {{"alpha", 0.25}, {"beta", 0.4}});
  results.push_back(*b.node("Clip", {x, in[2]}));
  return results;
}

// Several results of several types.
std::vector<ValueId> of_types(ir::Builder& b, const std::vector<ValueId>& in) {
  const auto cast = [&](ValueId x, const char* to) {
    return *b.node("Cast", {x}, {{"to", std::string(to)}});
  };
  const ValueId sum = *b.node("Add", {in[0], in[1]}), less = *b.node("Less", {in[0], in[1]});
  return {cast(sum, "f16"),  cast(sum, "bf16"),
          cast(sum, "f32"),  cast(sum, "i8"),
          cast(sum, "u16"),  less,
          cast(less, "i64"), sum};
}

std::vector<ValueId> of_integers(ir::Builder& b, const std::vector<ValueId>& in) {
  const ValueId rest = *b.node("Mod", {*b.node("Mul", {in[0], in[0]}), in[1]});
  return {*b.node("BitwiseXor", {rest, in[0]}), *b.node("Div", {rest, in[1]})};
}

std::vector<ChainModel> all_chains() {
  std::vector<ChainModel> all;
  for (const conformance::Case& c : conformance::all_cases()) {
    for (const DType dtype : c.dtypes) {
      if (c.op != "Elementwise" || dtype == DType::kF64) continue;  // no chain computes in f64
      conformance::Operands operands = *conformance::make_operands(c, dtype);
      all.push_back({std::move(operands.graph), std::move(operands.inputs)});
    }
  }
  for (const Extents& e : {Extents{5}, Extents{0, 3}, Extents{1, 1}, Extents{7, 12}, Extents{3, 5, 9}}) {
    const Extents row{e[e.rank() - 1]};
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      all.push_back(elementwise_of(dtype, {e, row}, of_types));
    }
    all.push_back(elementwise_of(DType::kI32, {e, row}, of_integers, 1, 99));
  }
  all.push_back(elementwise_of(DType::kF32, {{9, 64}, {9, 1}, {1}}, all_of_floats, 0.1, 2));
  all.push_back(elementwise_of(DType::kF16, {{9, 64}, {9, 1}, {1}}, all_of_floats, 0.1, 2));
  return all;
}

// Sources of all chains, compiled at once.
void compile_at_once(const std::vector<ChainModel>& chains) {
  cuda_double::GatheredChains gathered;
  const Ref<device::Device> device = opened(compiling());
  for (const ChainModel& each : chains) REQUIRE(compile_chain(*device, each).ok());
  gathered.compile();
}

TEST_CASE("a compiled chain has the bits of the interpreter, however its operands lie") {
  const std::vector<ChainModel> chains = all_chains();
  compile_at_once(chains);
  const Ref<device::Device> compiled = opened(compiling()), interpreted = opened(interpreting());
  size_t with_launches = 0;
  for (size_t i = 0; i < chains.size(); ++i) {
    CAPTURE(i);
    const auto program = compile_chain(*compiled, chains[i]), other = compile_chain(*interpreted, chains[i]);
    REQUIRE(program.ok());
    REQUIRE(other.ok());
    if (first_kernel(**other) == "none") continue;
    ++with_launches;
    CHECK(is_compiled(**program) == first_kernel(**other).starts_with("chain_"));
    const auto got = outputs_of(*compiled, **program, chains[i]),
               wanted = outputs_of(*interpreted, **other, chains[i]);
    REQUIRE(got.size() == wanted.size());
    for (size_t k = 0; k < got.size(); ++k) {
      CAPTURE(k);
      CHECK(conformance::same_bits(got[k], wanted[k]));
    }
  }
  CHECK(with_launches > 60);
}

TEST_CASE("one source serves all shapes, also those whose threads take several quads, and other numbers") {
  const Ref<device::Device> compiled = opened(compiling()), interpreted = opened(interpreting());
  const int before = cuda_double::compiled_so_far();
  for (const Extents& extents :
       {Extents{6, 8}, Extents{3, 40}, Extents{2, 3, 64}, Extents{300, 128}, Extents{257, 132}}) {
    CAPTURE(extents);
    const ChainModel chain = row_chain(extents);
    const auto program = compile_chain(*compiled, chain), other = compile_chain(*interpreted, chain);
    REQUIRE(program.ok());
    REQUIRE(other.ok());
    CHECK(is_compiled(**program));
    CHECK(conformance::same_bits(outputs_of(*compiled, **program, chain)[0],
                                 outputs_of(*interpreted, **other, chain)[0]));
  }
  CHECK(cuda_double::compiled_so_far() == before + 1);
  const auto times = [&](double factor) {
    ir::Builder b;
    ChainModel made{{}, {random_tensor(DType::kF32, {6, 8}, 1)}};
    const ValueId x = b.input("x", made.inputs[0].type());
    const ValueId scaled = *b.node("Mul", {x, b.constant(ir::Tensor::scalar(DType::kF32, factor))});
    b.output(*b.node("LeakyRelu", {scaled}, {{"alpha", factor / 7}}));
    made.graph = *b.take();
    const auto program = compile_chain(*compiled, made);
    REQUIRE(program.ok());
    CHECK(is_compiled(**program));
    const float first = made.inputs[0].as<float>()[0] * static_cast<float>(factor);
    const float wanted = first < 0 ? static_cast<float>(factor / 7) * first : first;
    CHECK(outputs_of(*compiled, **program, made)[0].as<float>()[0] == wanted);
  };
  times(3);
  times(-5);
  CHECK(cuda_double::compiled_so_far() == before + 2);
}

TEST_CASE("operands that begin where four elements are no single access give the same bits") {
  const ChainModel chain = row_chain({6, 40});
  const Ref<device::Device> device = opened(compiling());
  const auto program = compile_chain(*device, chain);
  REQUIRE(program.ok());
  REQUIRE(is_compiled(**program));
  const ir::Tensor wanted = outputs_of(*device, **program, chain)[0];
  for (const uint64_t offset : {uint64_t{4}, uint64_t{8}}) {
    for (int moved = 0; moved < 3; ++moved) {  // x, the row, the result
      CAPTURE(offset);
      CAPTURE(moved);
      const auto view_of = [&](const ir::Tensor& tensor, int which) {
        const int64_t words = tensor.elements() + 4;
        const device::View all = conformance::empty_like(*device, DType::kF32, {words});
        return device::View::contiguous(all.buffer, DType::kF32, tensor.extents(),
                                        all.offset + (which == moved ? offset : 0));
      };
      const std::vector<device::View> inputs = {view_of(chain.inputs[0], 0), view_of(chain.inputs[1], 1)};
      const device::View out = view_of(wanted, 2);
      device::CommandList list;
      for (size_t i = 0; i < 2; ++i) list.copy(conformance::upload(*device, chain.inputs[i]), inputs[i]);
      list.fill(out, -3);
      list.run(*program, nullptr, inputs, {out});
      REQUIRE(conformance::Session(*device).submit(list).ok());
      CHECK(conformance::same_bits(conformance::download(*device, out), wanted));
    }
  }
}

TEST_CASE("compiled chains are nodes of graphs, and run beside other kernels") {
  ir::Builder b;
  ChainModel chain{{}, {random_tensor(DType::kF32, {6, 40}, 1), random_tensor(DType::kF32, {40}, 2)}};
  ValueId x = b.input("x", chain.inputs[0].type());
  const ValueId row = b.input("row", chain.inputs[1].type());
  for (int i = 0; i < 3; ++i) x = *b.node("Softmax", {*b.node("Tanh", {*b.node("Add", {x, row})})});
  b.output(x);
  chain.graph = *b.take();
  cuda_double::forget_faults();
  const Ref<device::Device> device = opened(compiling()), interpreted = opened(interpreting());
  const auto program = compile_chain(*device, chain), other = compile_chain(*interpreted, chain);
  REQUIRE(program.ok());
  REQUIRE(other.ok());
  CHECK(is_compiled(**program));
  const ir::Tensor wanted = outputs_of(*interpreted, **other, chain)[0];
  conformance::Session session(*device);
  const std::vector<device::View> inputs = {conformance::upload(*device, chain.inputs[0]),
                                            conformance::upload(*device, chain.inputs[1])};
  const device::View out = conformance::empty_like(*device, DType::kF32, {6, 40});
  const auto arena = session.arena_for(**program);
  REQUIRE(arena.ok());
  for (int run = 0; run < 4; ++run) {
    device::CommandList list;
    list.fill(out, -3);
    list.run(*program, *arena, inputs, {out});
    REQUIRE(session.submit(list).ok());
    CHECK(conformance::same_bits(conformance::download(*device, out), wanted));
  }
  CHECK(cuda_double::calls_of(cuda_double::Call::kGraphLaunch) >= 2);
}

TEST_CASE("NVIDIA's own NVRTC takes every source, where it is found") {
  std::vector<std::string> folders = wheel_folders();
  if (const char* const named = std::getenv("HEDDLE_CUDA_LIBRARIES")) folders.insert(folders.begin(), named);
  const Result<FoundLibrary> library = find_library(kNvrtcNames, folders);
  if (!library.ok()) {
    MESSAGE("not run: " << library.status().message());
    return;
  }
  const auto api = load_nvrtc(*library);
  REQUIRE(api.ok());
  const auto real = Nvrtc::make(*api, 90);
  REQUIRE(real.ok());
  const cuda_double::GatheredChains gathered;
  const Ref<device::Device> device = opened(compiling());
  for (const ChainModel& each : all_chains()) REQUIRE(compile_chain(*device, each).ok());
  for (const std::string& source : gathered.sources()) {
    const auto code = real->compile(source);
    CHECK_MESSAGE(code.ok(), to_string(code.status()), source);
  }
}

}  // namespace
}  // namespace heddle::cuda
