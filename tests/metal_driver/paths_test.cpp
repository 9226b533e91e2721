// Kernels of Apple's that are wrong when several runs are in flight: the paths that the lowering takes
// instead.
#include "fixture.h"

namespace heddle::metal::test {
namespace {

Result<ir::Graph> product() {
  ir::Builder b;
  const ir::ValueId x = b.input("x", {DType::kF32, {4, 32}});
  b.output(*b.node("MatMul", {x, b.constant(conformance::random_tensor(DType::kF32, {32, 32}, 1))}));
  return b.take();
}

Result<ir::Graph> layer_norm() {
  ir::Builder b;
  const ir::ValueId x = b.input("x", {DType::kF32, {4, 32}});
  b.output(*b.node("LayerNormalization", {x, b.constant(conformance::random_tensor(DType::kF32, {32}, 1))}));
  return b.take();
}

Result<ir::Graph> packed_attention() {
  ir::Builder b;
  const ir::ValueId x = b.input("x", {DType::kF32, {2, 6, 16}});
  const ir::ValueId packed =
      *b.node("Linear", {x, b.constant(conformance::random_tensor(DType::kF32, {16, 48}, 1, -0.4, 0.4))});
  b.output(*b.node("Attention", {packed}, {{"num_heads", int64_t{2}}, {"packed", int64_t{1}}}));
  return b.take();
}

// Runs the graph on eight queues, all in flight before the first begins. How many results are wrong.
int wrong_of_eight(const ir::Graph& graph, Fault fault, const Defences& defences) {
  constexpr size_t kQueues = 8;
  const Machine machine;
  const auto device = open(defences);
  metal_double::set(fault, true);
  const auto module = device->load(graph, {}, NoLocksHeld());
  REQUIRE_MESSAGE(module.ok(), to_string(module.status()));
  const std::vector<ir::Tensor> inputs = {
      conformance::random_tensor(DType::kF32, *graph.type(graph.inputs[0]).extents(), 7)};
  const auto program = conformance::compile(**module, inputs);
  REQUIRE_MESSAGE(program.ok(), to_string(program.status()));
  const auto wanted = *ir::evaluate(graph, inputs);
  Session gate(*device);
  std::vector<Session> queues;
  std::vector<device::CommandList> lists(kQueues);
  std::vector<device::View> outputs;
  for (size_t i = 0; i < kQueues; ++i) {
    queues.emplace_back(*device);
    outputs.push_back(empty_like(*device, DType::kF32, wanted[0].extents()));
    lists[i].wait({gate.queue().timeline(), 1});
    lists[i].run(*program, queues[i].slot(), {upload(*device, inputs[0])}, {outputs[i]});
    REQUIRE(queues[i].queue().submit(lists[i], 1, NoLocksHeld()).ok());
  }
  device::CommandList opens;
  opens.fill(empty_like(*device, DType::kF32, {4}), 1);
  REQUIRE(gate.submit(opens).ok());
  int wrong = 0;
  for (size_t i = 0; i < kQueues; ++i) {
    REQUIRE(queues[i].queue().timeline()->wait(1, Deadline::never()).ok());
    wrong += conformance::difference(download(outputs[i]), wanted[0], {1e-4, 1e-4}).empty() ? 0 : 1;
  }
  return wrong;
}

TEST_CASE("kernels that are not re-entrant are not used: eight runs in flight are right") {
  struct Row {
    const char* name;
    Fault fault;
    bool Defences::* defence;
    Result<ir::Graph> (*graph)();
  };
  const Row rows[] = {
      {"product", Fault::kPlainProductAtThree, &Defences::products_by_graph, product},
      {"layer norm", Fault::kLayerNormAtFour, &Defences::norms_by_graph, layer_norm},
      {"packed attention", Fault::kPackedViewAtEight, &Defences::unpacks_projections, packed_attention}};
  for (const Row& row : rows) {
    CAPTURE(std::string(row.name));
    const ir::Graph graph = *row.graph();
    Defences without;
    without.*row.defence = false;
    CHECK(wrong_of_eight(graph, row.fault, without) > 0);
    CHECK(wrong_of_eight(graph, row.fault, {}) == 0);
  }
}

TEST_CASE("strided copies hold their sources and come after what writes them") {
  for (const Fault fault : {Fault::kStridedCopyReadsUnfinished, Fault::kStridedCopyDropsSource}) {
    const Machine machine;
    const auto device = open();
    metal_double::set(fault, true);
    for (int round = 0; round < 20; ++round) {
      Session session(*device);
      const device::View written = empty_like(*device, DType::kF32, {4, 8}),
                         to = empty_like(*device, DType::kF32, {8, 4});
      device::View turned = written;
      turned.extents = {8, 4};
      turned.strides = {1, 8};
      device::CommandList list;
      list.fill(written, round);
      list.copy(turned, to);
      REQUIRE(session.submit(list).ok());
      for (int64_t i = 0; i < 32; ++i) CHECK(download(to).get(i) == round);
    }
  }
}

TEST_CASE(
    "a graph that MPSGraph does not compile is an error of that compilation, and the next may succeed") {
  const Machine machine;
  const auto device = open();
  const auto module = *device->load(*product(), {}, NoLocksHeld());
  const std::vector<Extents> shapes = {{4, 32}};
  metal_double::set(Fault::kGraphCompileFailure, true);
  const auto failed = module->compile(shapes, NoLocksHeld());
  CHECK_FALSE(failed.ok());
  CHECK_FALSE(failed.status().message().empty());
  CHECK(module->compile(shapes, NoLocksHeld()).ok());
}

}  // namespace
}  // namespace heddle::metal::test
