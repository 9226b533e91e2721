#include "drivers/cuda/graph_builder.h"

namespace heddle::cuda {
namespace {

// CUDA copies what `params` points to.
KernelNode node_of(const Launch& launch, void** params) {
  KernelNode kernel;
  kernel.function = launch.kernel->function;
  kernel.grid_x = launch.blocks;
  kernel.block_x = launch.threads;
  kernel.shared_bytes = launch.shared_bytes;
  kernel.params = params;
  return kernel;
}

}  // namespace

GraphBuilder::~GraphBuilder() {
  if (graph_ != nullptr) device_.api.graph_destroy(graph_);
  if (stream_ != nullptr) device_.api.stream_destroy(stream_);
}

Status GraphBuilder::begin() { return device_.check(device_.api.graph_create(&graph_, 0), "cuGraphCreate"); }

Status GraphBuilder::launch(const Launch& launch, std::byte* params) {
  void* pointers[] = {params};
  const KernelNode kernel = node_of(launch, pointers);
  const bool early = may_begin_early(launch);
  GraphNode node = nullptr;
  HEDDLE_TRY(device_.check(device_.api.graph_add_kernel(&node, graph_, &last_, early ? 0 : before(), &kernel),
                           "cuGraphAddKernelNode"));
  if (early)
    HEDDLE_TRY(device_.check(device_.api.graph_add_edges(graph_, &last_, &node, &kEarlyEdge, 1),
                             "cuGraphAddDependencies"));
  last_ = node;
  last_blocks_ = launch.blocks;
  return {};
}

// An edge that CUDA refuses is a failure of the graph.
bool GraphBuilder::may_begin_early(const Launch& launch) const {
  return last_blocks_ > 0 && device_.begins_early(last_blocks_) && device_.begins_early(launch.blocks);
}

Result<bool> GraphBuilder::call(const LibraryCall& call, const std::byte* operands) {
  HEDDLE_TRY_ASSIGN(const GraphHandle child, captured(call, operands));
  GraphNode node = nullptr;
  const Code code = device_.api.graph_add_child(&node, graph_, &last_, before(), child);
  device_.api.graph_destroy(child);  // the graph has a copy
  HEDDLE_TRY(device_.check(code, "cuGraphAddChildGraphNode"));
  last_ = node;
  last_blocks_ = 0;
  return true;
}

// Whatever the library says, what was begun is ended.
Result<GraphHandle> GraphBuilder::captured(const LibraryCall& call, const std::byte* operands) {
  const DriverApi& api = device_.api;
  if (stream_ == nullptr)
    HEDDLE_TRY(device_.check(api.stream_create(&stream_, kNonBlockingStream), "cuStreamCreate"));
  HEDDLE_TRY(device_.check(api.begin_capture(stream_, kRelaxedCapture), "cuStreamBeginCapture"));
  const Status ran = call.run(operands, stream_);
  GraphHandle child = nullptr;
  const Status ended = device_.check(api.end_capture(stream_, &child), "cuStreamEndCapture");
  if (ran.ok() && ended.ok()) return child;
  if (child != nullptr) api.graph_destroy(child);
  return ran.ok() ? ended : ran;
}

Result<GraphExec> GraphBuilder::finish() {
  GraphExec executable = nullptr;
  HEDDLE_TRY(device_.check(device_.api.graph_instantiate(&executable, graph_, 0), "cuGraphInstantiate"));
  return executable;
}

Status NodeUpdate::launch(const Launch& launch, std::byte* params) {
  void* pointers[] = {params};
  const KernelNode kernel = node_of(launch, pointers);
  return device_.check(device_.api.graph_set_kernel(executable_, node_, &kernel),
                       "cuGraphExecKernelNodeSetParams");
}

}  // namespace heddle::cuda
