#include "drivers/cuda/graphs.h"

#include "base/trace.h"
#include "drivers/cuda/graph_builder.h"

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
  program.count_graph_failure();
  static_cast<void>(device_->check(code, "cuGraphLaunch"));
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
  if (!came_before(GraphHash()(place)) || would_disturb(place.program)) return false;
  const uint64_t bytes = bytes_of(place.program.graph_nodes());
  if (bytes > bytes_max_) return false;
  if (bytes_.load_relaxed() + bytes <= bytes_max_) return true;
  if (replacements_.add_relaxed(1) % kRunsPerReplacement != 0) return false;
  built_.erase_if([](const GraphKey& key) { return key.life.expired(); });
  return true;
}

// What is loaded stays loaded.
bool Graphs::would_disturb(const CudaProgram& program) {
  if (!program.calls_library()) return false;
  if (others_.load_relaxed()) return true;
  if (!others_use_cuda_()) return false;
  others_.store_relaxed(true);
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
  GraphBuilder builder(*device_);
  const auto made = [&]() -> Result<GraphExec> {
    HEDDLE_TRY(builder.begin());
    HEDDLE_TRY(place.program.give_steps(place.run, place.flags, builder));
    return builder.finish();
  }();
  if (!made.ok()) {
    place.program.count_graph_failure();
    return made.status();
  }
  return std::make_shared<const Graph>(*device_, *made, bytes_of(place.program.graph_nodes()), bytes_);
}

}  // namespace heddle::cuda
