#include "drivers/cuda/graphs.h"

#include "base/trace.h"

namespace heddle::cuda {
namespace {

constexpr uint64_t kMix = 0x9e3779b97f4a7c15u;

uint64_t begun(const void* program) { return reinterpret_cast<uintptr_t>(program); }

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * kMix;
  return hash ^ (hash >> 29);
}

}  // namespace

template <class F>
void GraphPlace::each_address(F&& f) const {
  f(run.arena->address());
  f(flags);
  for (const device::View& view : run.inputs) f(view.address());
  for (const device::View& view : run.outputs) f(view.address());
}

GraphKey::GraphKey(const GraphPlace& place)
    : program(place.program.life().get()), life(place.program.life()) {
  addresses.reserve(2 + place.run.inputs.size() + place.run.outputs.size());
  place.each_address([&](Address at) { addresses.push_back(at); });
}

bool GraphKey::operator==(const GraphPlace& place) const {
  bool equal = program == place.program.life().get();
  size_t i = 0;
  if (equal) place.each_address([&](Address at) { equal = equal && addresses[i++] == at; });
  return equal;
}

size_t GraphHash::operator()(const GraphKey& key) const {
  uint64_t hash = begun(key.program);
  for (const Address at : key.addresses) hash = mixed(hash, at);
  return hash;
}

size_t GraphHash::operator()(const GraphPlace& place) const {
  uint64_t hash = begun(place.program.life().get());
  place.each_address([&](Address at) { hash = mixed(hash, at); });
  return hash;
}

// CUDA lets a graph that is in flight end, and frees it then (cuGraphExecDestroy).
Graphs::Graph::~Graph() {
  sum.sub_relaxed(bytes);
  if (!device.is_ours()) return;
  const Current current(device);
  device.api.graph_exec_destroy(executable);
}

Status Graphs::launch(const CudaProgram& program, const device::Run& run, Address flags,
                      StreamHandle stream) {
  if (!program.fits_graph() || program.graph_failures() >= kMostFailures)
    return program.launch(run, flags, stream);
  const GraphPlace place{program, run, program.lowered().flag_words == 0 ? 0 : flags};
  const Ref<const Graph> graph = find(place);
  if (graph == nullptr) return program.launch(run, flags, stream);
  const Code code = device_->api.graph_launch(graph->executable, stream);
  if (code == kSuccess) [[likely]]
    return {};
  static_cast<void>(failure(code, program, "cuGraphLaunch"));
  built_.erase_if([&](const GraphKey& key) { return key == place; });
  // If the device is lost, this says so. A run overwrites all that it reads but its inputs: what CUDA took of
  // the graph does no harm.
  return program.launch(run, flags, stream);
}

Ref<const Graphs::Graph> Graphs::find(const GraphPlace& place) {
  if (Ref<const Graph> graph = built_.peek(place)) [[likely]]
    return graph;
  if (!is_wanted(place)) return nullptr;
  const trace::Span span("cuda", "graph", place.program.lowered().steps.size());
  Result<Ref<const Graph>> built = built_.get_or_make(place, [&]() -> Result<Built::Made> {
    HEDDLE_TRY_ASSIGN(Ref<const Graph> graph, build(place));
    const uint64_t bytes = graph->bytes;
    return Built::Made(std::move(graph), bytes);
  });
  return built.ok() ? *built : nullptr;
}

bool Graphs::is_wanted(const GraphPlace& place) {
  if (!came_before(GraphHash()(place))) return false;
  const uint64_t bytes = bytes_of(place.program.lowered().steps.size());
  if (bytes > bytes_max_) return false;
  if (bytes_.load_relaxed() + bytes <= bytes_max_) return true;
  if (replacements_.add_relaxed(1) % kRunsPerReplacement != 0) return false;
  built_.erase_if([](const GraphKey& key) { return key.life.expired(); });
  return true;
}

// Threads that meet in one set may forget a run, which then comes once more before it is a graph.
bool Graphs::came_before(uint64_t hash) {
  auto& set = seen_[hash % kSets];
  for (const auto& seen : set) {
    if (seen.load_relaxed() == hash) return true;
  }
  for (size_t i = kWays - 1; i > 0; --i) set[i].store_relaxed(set[i - 1].load_relaxed());
  set[0].store_relaxed(hash);
  return false;
}

Result<Ref<const Graphs::Graph>> Graphs::build(const GraphPlace& place) {
  const DriverApi& api = device_->api;
  const CudaProgram& program = place.program;
  GraphHandle graph = nullptr;
  if (const Code code = api.graph_create(&graph, 0); code != kSuccess)
    return failure(code, program, "cuGraphCreate");
  GraphExec executable = nullptr;
  Code code = add_nodes(graph, place);
  if (code == kSuccess) code = api.graph_instantiate(&executable, graph, 0);
  api.graph_destroy(graph);
  if (code != kSuccess) return failure(code, program, "cuGraphInstantiate");
  return std::make_shared<const Graph>(*device_, executable, bytes_of(program.lowered().steps.size()),
                                       bytes_);
}

Status Graphs::failure(Code code, const CudaProgram& program, std::string_view what) const {
  program.count_graph_failure();
  return device_->check(code, what);
}

// One after the other, as in a stream.
Code Graphs::add_nodes(GraphHandle graph, const GraphPlace& place) const {
  alignas(16) std::array<std::byte, CudaProgram::kMostParams> params;
  void* pointers[] = {params.data()};
  GraphNode before = nullptr;
  for (const Step& step : place.program.lowered().steps) {
    const auto& launch = std::get<Launch>(step);
    place.program.fill(launch.arguments, place.run, place.flags, params.data());
    KernelNode kernel;
    kernel.function = launch.kernel->function;
    kernel.grid_x = launch.blocks;
    kernel.block_x = launch.threads;
    kernel.shared_bytes = launch.shared_bytes;
    kernel.params = pointers;  // CUDA copies what they point to
    GraphNode node = nullptr;
    const Code code =
        device_->api.graph_add_kernel(&node, graph, &before, before == nullptr ? 0 : 1, &kernel);
    if (code != kSuccess) return code;
    before = node;
  }
  return kSuccess;
}

}  // namespace heddle::cuda
