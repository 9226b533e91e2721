// Apple's kernels that are wrong when several threads are in them: with the driver's defence off the numbers
// are wrong, with it on they are not. And a graph that does not compile.
#include <doctest/doctest.h>

#include <cstring>

#include "ir/builder.h"
#include "tests/metal_double/control.h"
#include "tests/metal_double/graph/lowering_bench.h"

namespace heddle::metal {
namespace {

using metal_double::Fault;

ir::Graph projection() {
  ir::Builder b;
  const ir::ValueId x = b.input("x", {DType::kF32, {4, 8}});
  b.output(*b.node("Linear", {x, b.constant(random_tensor(DType::kF32, {8, 6}, 1, -1, 1))}));
  return *b.take();
}

ir::Graph normalization() {
  ir::Builder b;
  const ir::ValueId x = b.input("x", {DType::kF32, {4, 8}});
  b.output(*b.node("LayerNormalization", {x, b.constant(random_tensor(DType::kF32, {8}, 2, 0.5, 1))}));
  return *b.take();
}

ir::Graph packed_attention() {
  ir::Builder b;
  const ir::ValueId x = b.input("x", {DType::kF32, {2, 5, 8}});
  const ir::ValueId qkv = *b.node("Linear", {x, b.constant(random_tensor(DType::kF32, {8, 24}, 3, -1, 1))});
  b.output(*b.node("Attention", {qkv}, {{"num_heads", int64_t{2}}, {"packed", int64_t{1}}}));
  return *b.take();
}

id<MTLBuffer> buffer_of(id<MTLDevice> device, const ir::Tensor& tensor) {
  return [[device newBufferWithBytes:tensor.data()
                              length:static_cast<NSUInteger>(tensor.bytes())
                             options:MTLResourceStorageModeShared] autorelease];
}

MPSGraphTensorData* data_of(id<MTLBuffer> buffer, MPSGraphTensor* tensor) {
  return [[[MPSGraphTensorData alloc] initWithMTLBuffer:buffer
                                                  shape:[tensor shape]
                                               dataType:[tensor dataType]] autorelease];
}

// The results of `queues` runs that are all encoded before the first is committed.
std::vector<ir::Tensor> run_together(const Bench& bench, const Compiled& c, const ir::Tensor& input,
                                     int queues) {
  MPSGraphExecutable* executable = c.lowered.executable.get();
  const ir::ValueId output = c.graph.outputs[0];
  const ir::Tensor empty = ir::Tensor::zeros(c.graph.type(output).dtype, *c.graph.type(output).extents());
  std::vector<id<MTLBuffer>> results;
  std::vector<id<MTLCommandBuffer>> buffers;
  for (int i = 0; i < queues; ++i) {
    const id<MTLCommandQueue> queue = [[bench.device() newCommandQueue] autorelease];
    MPSCommandBuffer* buffer = [MPSCommandBuffer commandBufferFromCommandQueue:queue];
    NSMutableArray<MPSGraphTensorData*>* feeds = [NSMutableArray array];
    for (size_t k = 0; k < c.lowered.feeds.size(); ++k) {
      const Feed& feed = c.lowered.feeds[k];
      const ir::Tensor& tensor = feed.kind == Feed::Kind::input ? input : c.weights->tensor(feed.index);
      [feeds
          addObject:data_of(buffer_of(bench.device(), tensor), [[executable feedTensors] objectAtIndex:k])];
    }
    results.push_back(buffer_of(bench.device(), empty));
    NSArray<MPSGraphTensorData*>* out =
        [NSArray arrayWithObject:data_of(results.back(), [[executable targetTensors] objectAtIndex:0])];
    [executable encodeToCommandBuffer:buffer inputsArray:feeds resultsArray:out executionDescriptor:nil];
    buffers.push_back([buffer commandBuffer]);
  }
  for (const id<MTLCommandBuffer> buffer : buffers) [buffer commit];
  std::vector<ir::Tensor> out;
  for (size_t i = 0; i < buffers.size(); ++i) {
    [buffers[i] waitUntilCompleted];
    ir::Tensor tensor = ir::Tensor::zeros(empty.dtype(), empty.extents());
    std::memcpy(tensor.mutable_data(), [results[i] contents], static_cast<size_t>(tensor.bytes()));
    out.push_back(tensor);
  }
  return out;
}

int wrong_among(const Bench& bench, const ir::Graph& graph, Defences defences, int queues) {
  @autoreleasepool {
    const ir::Tensor input = random_tensor(DType::kF32, *graph.type(graph.inputs[0]).extents(), 9, -1, 1);
    const auto compiled = bench.compile(graph, {input}, defences);
    REQUIRE_MESSAGE(compiled.ok(), to_string(compiled.status()));
    const ir::Tensor alone = bench.run(*compiled, {input})[0];
    int wrong = 0;
    for (const ir::Tensor& got : run_together(bench, *compiled, input, queues))
      wrong += std::memcmp(got.data(), alone.data(), static_cast<size_t>(alone.bytes())) != 0;
    return wrong;
  }
}

TEST_CASE("kernels that are wrong with several threads in them: wrong without the defence, right with it") {
  struct Row {
    const char* name;
    Fault fault;
    ir::Graph graph;
    int threads;
    bool Defences::* defence;
  };
  const Row rows[] = {
      {"linear", Fault::kPlainProductAtThree, projection(), 3, &Defences::products_by_graph},
      {"layer norm", Fault::kLayerNormAtFour, normalization(), 4, &Defences::norms_by_graph},
      {"attention", Fault::kPackedViewAtEight, packed_attention(), 8, &Defences::unpacks_projections},
  };
  const Bench bench;
  for (const Row& row : rows) {
    CAPTURE(row.name);
    Defences off;
    off.*row.defence = false;
    CHECK(wrong_among(bench, row.graph, off, row.threads) == 0);
    metal_double::set(row.fault, true);
    CHECK(wrong_among(bench, row.graph, off, row.threads - 1) == 0);
    CHECK(wrong_among(bench, row.graph, off, row.threads) > 0);
    CHECK(wrong_among(bench, row.graph, {}, 2 * row.threads) == 0);
    metal_double::set(row.fault, false);
  }
}

TEST_CASE("a graph that MPSGraph does not compile is a Status; the next attempt compiles") {
  const Bench bench;
  metal_double::set(Fault::kGraphCompileFailure, true);
  const ir::Tensor input = random_tensor(DType::kF32, {4, 8}, 9, -1, 1);
  CHECK(bench.compile(projection(), {input}).status().code() == Code::internal);
  CHECK(bench.compile(projection(), {input}).ok());
}

TEST_CASE("an index outside is flagged for its row, and other rows keep their values") {
  ir::Builder b;
  const ir::ValueId rows = b.input("rows", {DType::kI64, {ir::Dim::symbol("batch"), 2}});
  const ir::ValueId table = b.constant(random_tensor(DType::kF32, {5, 3}, 1, -1, 1));
  b.output(*b.node("Gather", {table, rows}, {}, "lookup"));
  const ir::Graph graph = *b.take();
  ir::Tensor indices = ir::Tensor::zeros(DType::kI64, {3, 2});
  indices.set_i64(1, -5);
  const ir::Tensor right = (*ir::evaluate(graph, std::vector<ir::Tensor>{indices}))[0];
  ir::Tensor bad = ir::Tensor::zeros(DType::kI64, {3, 2});
  bad.set_i64(1, -5);
  bad.set_i64(3, 5);
  const Bench bench;
  const auto compiled = bench.compile(graph, {bad});
  REQUIRE(compiled.ok());
  REQUIRE(compiled->lowered.checks.size() == 1);
  CHECK(compiled->lowered.checks[0].per_row);
  CHECK(compiled->lowered.checks[0].mistake.find("'lookup'") != std::string::npos);
  const auto got = bench.run(*compiled, {bad});
  for (int64_t row = 0; row < 3; ++row) {
    CHECK(got[1].get_i64(row) == (row == 1 ? 1 : 0));
    for (int64_t i = 0; row != 1 && i < 6; ++i) CHECK(got[0].get(row * 6 + i) == right.get(row * 6 + i));
  }
}

}  // namespace
}  // namespace heddle::metal
