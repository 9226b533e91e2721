// Kernels of Apple's that are wrong when several runs are in flight: the paths that the lowering takes
// instead.
#include <cstdlib>
#include <cstring>
#include <memory>

#include "device/plain_source_fixture.h"
#include "metal_driver_fixture.h"

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
  const auto module = device->load(graph, {}, device::plain_source(*device), NoLocksHeld());
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
    lists[i].run(*program, *queues[i].arena_for(**program), {upload(*device, inputs[0])}, {outputs[i]});
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

// Fills and copies through turned strides in one submission, twenty times. How many copies are wrong.
int wrong_behind_writers(const Defences& defences) {
  const Machine machine;
  const auto device = open(defences);
  metal_double::set(Fault::kStridedCopyReadsUnfinished, true);
  int wrong = 0;
  for (int round = 1; round <= 20; ++round) {
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
    bool right = true;
    for (int64_t i = 0; i < 32; ++i) right = right && download(to).get(i) == round;
    wrong += right ? 0 : 1;
  }
  return wrong;
}

// Copies memory of the caller, which Metal maps for the submission alone, and begins when that has returned.
// How many elements are wrong.
int64_t wrong_of_mapped(const Defences& defences) {
  constexpr int64_t kRows = 160, kColumns = 128;
  constexpr size_t kPage = 16384, kBytes = (kRows * kColumns * 4 / kPage + 1) * kPage;
  const Machine machine;
  const auto device = open(defences);
  metal_double::set(Fault::kStridedCopyDropsSource, true);
  const ir::Tensor wanted = numbers({kRows, kColumns}, 1);
  const std::unique_ptr<std::byte, decltype(&std::free)> memory(
      static_cast<std::byte*>(std::aligned_alloc(kPage, kBytes)), &std::free);
  std::memcpy(memory.get(), wanted.data(), static_cast<size_t>(wanted.bytes()));
  device::View turned = empty_like(*device, DType::kF32, {kRows, kColumns});
  turned.strides = {1, kRows};
  Session gate(*device), session(*device);
  device::CommandList list, opens;
  list.wait({gate.queue().timeline(), 1});
  list.copy(device::View::contiguous(memory.get(), DType::kF32, {kRows, kColumns}), turned);
  REQUIRE(session.queue().submit(list, 1, NoLocksHeld()).ok());
  opens.fill(empty_like(*device, DType::kF32, {4}), 1);
  REQUIRE(gate.submit(opens).ok());
  REQUIRE(session.queue().timeline()->wait(1, Deadline::never()).ok());
  const ir::Tensor got = download(turned);
  int64_t wrong = 0;
  for (int64_t i = 0; i < got.elements(); ++i) wrong += got.get(i) == wanted.get(i) ? 0 : 1;
  return wrong;
}

TEST_CASE("strided copies hold their sources and come after what writes them") {
  Defences without;
  without.own_strided_copies = false;
  CHECK(wrong_behind_writers(without) == 20);
  CHECK(wrong_behind_writers({}) == 0);
  CHECK(wrong_of_mapped(without) == 160 * 128);
  CHECK(wrong_of_mapped({}) == 0);
}

TEST_CASE("without its fault the strided copy of MPS gives what ours gives") {
  Defences without;
  without.own_strided_copies = false;
  const Machine machine;
  const auto device = open(without);
  const ir::Tensor wanted = numbers({4, 8}, 1);
  for (const bool from_turned : {false, true}) {
    for (const bool to_turned : {false, true}) {
      device::View from = empty_like(*device, DType::kF32, {4, 8}), to = from, dense = from;
      to = empty_like(*device, DType::kF32, {4, 8});
      dense = upload(*device, wanted);
      if (from_turned) from.strides = {1, 4};
      if (to_turned) to.strides = {1, 4};
      Session session(*device);
      device::CommandList list;
      list.copy(dense, from);
      list.copy(from, to);
      REQUIRE(session.submit(list).ok());
      CHECK(conformance::same_bits(download(to), wanted));
    }
  }
}

// Runs the product once, its output filled with sevens before. True when it is right.
bool is_right(device::Device& device, const Ref<const device::Program>& program, const ir::Graph& graph) {
  const std::vector<ir::Tensor> inputs = {conformance::random_tensor(DType::kF32, {4, 32}, 7)};
  const device::View out = empty_like(device, DType::kF32, {4, 32});
  Session session(device);
  device::CommandList list;
  list.fill(out, 7);
  list.run(program, *session.arena_for(*program), {upload(device, inputs[0])}, {out});
  REQUIRE(session.submit(list).ok());
  return conformance::difference(download(out), (*ir::evaluate(graph, inputs))[0], {1e-4, 1e-4}).empty();
}

TEST_CASE(
    "a graph that MPSGraph does not compile is an error of that compilation, and the next may succeed") {
  const Machine machine;
  const ir::Graph graph = *product();
  const std::vector<Extents> shapes = {{4, 32}};
  for (const bool noticed : {false, true}) {
    Defences defences;
    defences.notices_nil = noticed;
    const auto device = open(defences);
    const auto module = *device->load(graph, {}, device::plain_source(*device), NoLocksHeld());
    metal_double::set(Fault::kGraphCompileFailure, true);
    const auto first = module->compile(shapes, NoLocksHeld());
    CHECK_FALSE(metal_double::is_on(Fault::kGraphCompileFailure));
    CHECK(first.ok() == !noticed);
    if (noticed) {
      CHECK(first.status().code() == Code::internal);
      CHECK(first.status().message().find("MPSGraph did not compile") != std::string::npos);
    } else {
      CHECK_FALSE(is_right(*device, *first, graph));  // a call that computes nothing, and says it is well
    }
    const auto next = module->compile(shapes, NoLocksHeld());
    REQUIRE(next.ok());
    CHECK(is_right(*device, *next, graph));
  }
}

}  // namespace
}  // namespace heddle::metal::test
