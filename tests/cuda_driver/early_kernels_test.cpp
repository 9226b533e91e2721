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
  CHECK(early_edges(graphs, 4096) < 7);  // products of more blocks than there are multiprocessors
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

// [8, 256] x [256, 16], whose columns are computed right in front of it.
Ref<const device::Program> computed_columns(device::Device& device) {
  ir::Builder b;
  const ir::ValueId x = b.input("x", {ir::DType::kF32, {8, 256}}),
                    z = b.input("z", {ir::DType::kF32, {256, 16}});
  const ir::ValueId y = *b.node("Relu", {z});
  b.output(*b.node("Softmax", {*b.node("MatMul", {x, y})}, {{"axis", int64_t{-1}}}));
  const auto module = device.load(*b.take(), {}, device::plain_source(device), NoLocksHeld());
  REQUIRE(module.ok());
  const auto program = (*module)->compile(std::vector<ir::Extents>{{8, 256}, {256, 16}}, NoLocksHeld());
  REQUIRE(program.ok());
  return *program;
}

TEST_CASE("a product waits for what computes its columns before it reads them") {
  const std::vector<ir::Tensor> in{random_tensor(ir::DType::kF32, {8, 256}, 1),
                                   random_tensor(ir::DType::kF32, {256, 16}, 2)};
  const auto direct = device_of({.graph_bytes = 0});
  const auto wanted = Session(*direct).run(computed_columns(*direct), in);
  REQUIRE(wanted.ok());
  const auto device = device_with_graphs();
  const auto program = computed_columns(*device);
  const Place place = place_of(*device, *program, in);
  Session session(*device);
  for (int i = 0; i < 3; ++i)
    CHECK(conformance::same_bits(result_at(*device, session, program, place), (*wanted)[0]));
  CHECK(calls_of(Call::kEdge) == 2);
  CHECK(calls_of(Call::kGraphLaunch) == 2);
}

}  // namespace
}  // namespace heddle::cuda
