// Kernels of graphs that begin before those in front of them have ended.
#include <doctest/doctest.h>

#include <cstring>

#include "tests/cuda_driver/graphs_fixture.h"

namespace heddle::cuda {
namespace {

using namespace graphs_fixture;  // NOLINT

// Early edges of a graph of six launches, and of a copy on either side.
int early_edges(const CudaOptions& options, int64_t rows) {
  const auto device = device_of(options);
  const auto program = layers(*device, rows);
  REQUIRE(launches_of(program) == 6);
  const ir::Tensor x = rows_of(rows, 1), wanted = launched_directly(x);
  const Staged staged(*device, *program, x);
  Session session(*device);
  cuda_double::forget_faults();
  for (int i = 0; i < 3; ++i) {
    std::memset(staged.out.host(), 0, static_cast<size_t>(x.bytes()));
    REQUIRE(staged.submit(session, program).ok());
    CHECK(staged.holds(wanted));
  }
  CHECK(calls_of(Call::kInstantiate) == 1);
  return calls_of(Call::kEdge);
}

TEST_CASE("kernels of few blocks begin before those in front have ended, where GPU and driver have that") {
  const CudaOptions graphs{.graph_bytes = 64 << 20};
  CHECK(early_edges(graphs, 5) == 7);
  // Of more blocks than there are multiprocessors, but for the last copy.
  CHECK(early_edges(graphs, 4096) == 0);
  {
    const cuda_double::NoClusters older_gpu;
    CHECK(early_edges(graphs, 5) == 0);
  }
  DriverApi older = cuda_double::api();
  older.graph_add_edges = nullptr;
  CudaOptions with_older = graphs;
  with_older.api = &older;
  CHECK(early_edges(with_older, 5) == 0);
}

Ref<const device::Program> compiled(device::Device& device, ir::Builder& b,
                                    const std::vector<ir::Extents>& in) {
  const auto module = device.load(*b.take(), {}, device::plain_source(device), NoLocksHeld());
  REQUIRE(module.ok());
  const auto program = (*module)->compile(in, NoLocksHeld());
  REQUIRE(program.ok());
  return *program;
}

TEST_CASE("a kernel of many blocks begins when the one in front has ended, and so does the next behind it") {
  const auto device = device_with_graphs();
  ir::Builder b;
  const ir::ValueId x = b.input("x", {ir::DType::kF32, {4, 8}});
  const ir::ValueId wide = b.constant(random_tensor(ir::DType::kF32, {8, 4096}, 1));
  b.output(*b.node("Softmax", {*b.node("MatMul", {*b.node("Relu", {x}), wide})}, {{"axis", int64_t{-1}}}));
  const auto program = compiled(*device, b, {{4, 8}});
  std::vector<unsigned> blocks;
  for (const Step& step : of_cuda(program).lowered().steps) blocks.push_back(std::get<Launch>(step).blocks);
  REQUIRE(blocks.size() == 3);
  const unsigned few = 4;  // the double's multiprocessors
  REQUIRE((blocks[0] <= few && blocks[1] > few && blocks[2] <= few));
  const Place place = place_of(*device, *program, {random_tensor(ir::DType::kF32, {4, 8}, 2)});
  Session session(*device);
  cuda_double::forget_faults();
  for (int i = 0; i < 3; ++i) REQUIRE(run_at(session, program, place).ok());
  CHECK(calls_of(Call::kGraphLaunch) == 2);
  CHECK(calls_of(Call::kEdge) == 0);
}

// [8, 256] x [256, 16], of which one is computed right in front of it, and the other given.
Ref<const device::Program> computed(device::Device& device, bool columns) {
  ir::Builder b;
  const ir::Tensor given =
      random_tensor(ir::DType::kF32, columns ? ir::Extents{8, 256} : ir::Extents{256, 16}, 3);
  const ir::Extents in = columns ? ir::Extents{256, 16} : ir::Extents{8, 256};
  const ir::ValueId x = b.input("x", {ir::DType::kF32, {in[0], in[1]}});
  const ir::ValueId made = *b.node("Relu", {x}), other = b.constant(given);
  const ir::ValueId product = columns ? *b.node("MatMul", {other, made}) : *b.node("MatMul", {made, other});
  b.output(*b.node("Softmax", {product}, {{"axis", int64_t{-1}}}));
  return compiled(device, b, {in});
}

TEST_CASE("a product waits for what computes its rows or its columns before it reads them") {
  for (const bool columns : {true, false}) {
    CAPTURE(columns);
    const ir::Tensor in =
        random_tensor(ir::DType::kF32, columns ? ir::Extents{256, 16} : ir::Extents{8, 256}, 1);
    const auto direct = device_of({.graph_bytes = 0});
    const auto wanted = Session(*direct).run(computed(*direct, columns), std::vector{in});
    REQUIRE(wanted.ok());
    const auto device = device_with_graphs();
    const auto program = computed(*device, columns);
    const Place place = place_of(*device, *program, {in});
    Session session(*device);
    for (int i = 0; i < 3; ++i)
      CHECK(conformance::same_bits(result_at(*device, session, program, place), (*wanted)[0]));
    CHECK(calls_of(Call::kEdge) == 2);
    CHECK(calls_of(Call::kGraphLaunch) == 2);
  }
}

}  // namespace
}  // namespace heddle::cuda
