// What a plan says of how a shape's runs are launched.
#include <doctest/doctest.h>

#include "ir/op.h"
#include "tests/cuda_driver/graphs_fixture.h"

namespace heddle::cuda {
namespace {

using namespace graphs_fixture;  // NOLINT

Ref<const device::Module> loaded(device::Device& device, ir::Graph graph) {
  auto module = device.load(std::move(graph), {}, device::plain_source(device), NoLocksHeld());
  REQUIRE(module.ok());
  return *std::move(module);
}

std::string said(const device::Module& module, int64_t rows) {
  const auto plan = module.plan(std::vector{ir::Extents{rows, kWidth}}, UINT64_MAX, NoLocksHeld());
  REQUIRE_MESSAGE(plan.ok(), to_string(plan.status()));
  return plan->launches;
}

ir::Graph one_step() {
  ir::Builder b;
  b.output(*b.node("Softmax", {b.input("x", {ir::DType::kF32, {ir::Dim::symbol("rows"), kWidth}})}));
  return *b.take();
}

TEST_CASE("a plan says whether a shape's runs become a graph, and why they do not") {
  const ir::Dim rows = ir::Dim::symbol("rows");
  const auto plain = device_with_graphs();
  const std::string graph = "a graph, once a run comes again with the same memory";
  CHECK(said(*loaded(*plain, graph_of_layers(rows, 3)), 4) == graph);
  CHECK(said(*loaded(*plain, graph_of_layers(rows, 1)), 4) ==
        "step by step: it has 2 steps; with the copies beside it 3 or more, " + graph);
  CHECK(said(*loaded(*plain, one_step()), 4) ==
        "step by step: it needs no memory beside its inputs and outputs");
  CHECK(said(*loaded(*device_of({.graph_bytes = 0}), graph_of_layers(rows, 3)), 4) ==
        "step by step: graphs are switched off");
  CHECK(said(*loaded(*device_with_graphs(60 << 10), graph_of_layers(rows, 3)), 4) ==
        "step by step: a graph of it takes about 70 KiB, and all graphs together may have 60");
}

TEST_CASE("a plan says that a library's calls become no graph where others of the process use CUDA") {
  ir::Builder b;
  const ir::ValueId x = b.input("x", {ir::DType::kF16, {ir::Dim::symbol("rows"), kWidth}});
  const ir::ValueId w = b.constant(random_tensor(ir::DType::kF16, {kWidth, kWidth}, 1));
  b.output(*b.node("Softmax", {*b.node("MatMul", {x, w})}));
  const ir::Graph product = *b.take();
  const auto said_beside = [&](bool (*others_use_cuda)()) {
    const auto device = device_of(
        {.blas = &cuda_double::blas_lt(), .tuning = {.on = false}, .others_use_cuda = others_use_cuda});
    return said(*loaded(*device, product), 200);
  };
  CHECK(said_beside([] { return true; }) ==
        "step by step: it calls a library of NVIDIA's, and others of this process use CUDA");
  CHECK(said_beside([] { return false; }) == "a graph, once a run comes again with the same memory");
}

TEST_CASE("a plan says of a shape whose graphs failed three times that it is launched step by step") {
  const auto device = device_with_graphs();
  const auto module = loaded(*device, graph_of_layers(ir::Dim::symbol("rows"), 4));
  const std::string before = said(*module, 4);
  auto program = *module->compile(std::vector{ir::Extents{4, kWidth}}, NoLocksHeld());
  const Place place = place_of(*device, *program, {rows_of(4, 1)});
  Session session(*device);
  cuda_double::refuse(Call::kInstantiate, kOutOfMemory, 0, 1000);
  for (int failures = 0; failures < 3; ++failures) {
    CHECK(said(*module, 4) == before);
    for (int run = 0; run < (failures == 0 ? 2 : 1); ++run) REQUIRE(run_at(session, program, place).ok());
  }
  CHECK(said(*module, 4) == "step by step: its graphs failed 3 times");
  CHECK(said(*module, 5) == before);  // of a shape of its own
  program.reset();                    // the next one for the shape is tried for itself
  CHECK(said(*module, 4) == before);
  cuda_double::forget_faults();
}

}  // namespace
}  // namespace heddle::cuda
