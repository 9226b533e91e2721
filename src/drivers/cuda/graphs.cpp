#include "drivers/cuda/graphs.h"

#include "base/no_memory.h"
#include "base/trace.h"
#include "drivers/cuda/graph_builder.h"
#include "drivers/cuda/moves.h"

namespace heddle::cuda {
namespace {

constexpr uint64_t kMix = 0x9e3779b97f4a7c15u;

uint64_t begun(const void* program) { return reinterpret_cast<uintptr_t>(program); }

// `ticket` 0: it tells of nothing.
Status give_noted(const OpenDevice& device, const device::Copy& copy, Address ticket, StepTaker& to) {
  return ticket == 0 ? give_copy(device, copy, to) : give_copy_and_tell(device, copy, ticket, to);
}

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * kMix;
  return hash ^ (hash >> 29);
}

}  // namespace

template <class F>
void GraphPlace::each_word(F&& f) const {
  f(run.arena->address());
  f(flags);
  f(tells() ? 1 : 0);
  for (const device::View& view : run.inputs) f(view.address());
  for (const device::View& view : run.outputs) f(view.address());
  for (const auto& copies : {before, after}) {
    f(copies.size());
    for (const device::Command& command : copies) {
      const auto& copy = std::get<device::Copy>(command);
      f(copy.to.bytes());
      f(static_cast<uint64_t>(ir::size_of(copy.to.dtype)));
    }
  }
}

template <class F>
Status GraphPlace::each_copy(std::span<const device::Command> copies, F&& f) const {
  for (const device::Command& command : copies) HEDDLE_TRY(f(std::get<device::Copy>(command)));
  return {};
}

// What names the nodes of copies is kept beside the executable graph.
uint64_t GraphPlace::bytes() const {
  const uint64_t once = Graphs::bytes_of(program().graph_nodes() + copies());
  return copies() == 0 ? once : 2 * once;
}

Status GraphPlace::give(const OpenDevice& device, StepTaker& to) const {
  const auto copy = [&](const device::Copy& each) { return give_copy(device, each, to); };
  HEDDLE_TRY(each_copy(before, copy));
  HEDDLE_TRY(program().give_steps(run, flags, to));
  return each_copy(after, copy);
}

GraphKey::GraphKey(const GraphPlace& place)
    : program(place.program().life().get()), life(place.program().life()) {
  place.each_word([&](uint64_t word) { words.push_back(word); });
}

bool GraphKey::operator==(const GraphPlace& place) const {
  bool equal = program == place.program().life().get();
  size_t i = 0;
  if (equal) place.each_word([&](uint64_t word) { equal = equal && i < words.size() && words[i++] == word; });
  return equal && i == words.size();
}

size_t GraphHash::operator()(const GraphKey& key) const {
  uint64_t hash = begun(key.program);
  for (const uint64_t word : key.words) hash = mixed(hash, word);
  return hash;
}

size_t GraphHash::operator()(const GraphPlace& place) const {
  uint64_t hash = begun(place.program().life().get());
  place.each_word([&](uint64_t word) { hash = mixed(hash, word); });
  return hash;
}

// CUDA lets a graph that is in flight end, and frees it then (cuGraphExecDestroy).
Graphs::Graph::~Graph() {
  sum->sub_relaxed(bytes);
  if (!device->is_ours()) return;
  const Current current(*device);
  device->api.graph_exec_destroy(executable);
  if (graph != nullptr) device->api.graph_destroy(graph);
}

Result<Graphs::Launched> Graphs::launch(const GraphPlace& place, StreamHandle stream) {
  const CudaProgram& program = place.program();
  const bool may = program.fits_graph(place.copies()) && program.graph_failures() < kMostFailures;
  Ref<const Graph> graph;  // none where the host lacks memory for one: nothing is enqueued by then
  static_cast<void>(or_exhausted("a graph", [&] {
    if (may) graph = find(place);
    return Status();
  }));
  if (graph != nullptr && is_launched(*graph, place, stream)) [[likely]]
    return Launched{graph->tells(), graph->tells() ? graph : nullptr};
  IntoStream into(*device_, stream);
  HEDDLE_TRY(place.give(*device_, into));
  return Launched{false, std::move(graph)};  // CUDA may have taken a part of it
}

std::string Graphs::describe(const StepCounts& counts, uint64_t arena_bytes, uint32_t failures) const {
  constexpr const char* kByStep = "step by step: ";
  if (failures >= kMostFailures) return text(kByStep, "its graphs failed ", failures, " times");
  if (arena_bytes == 0) return text(kByStep, "it needs no memory beside its inputs and outputs");
  if (counts.calls > 0 && (others_.load_relaxed() || others_use_cuda_()))
    return text(kByStep, "it calls a library of NVIDIA's, and others of this process use CUDA");
  if (bytes_of(counts.graph_nodes()) > bytes_max_) {
    return text(kByStep, "a graph of it takes about ", bytes_of(counts.graph_nodes()) >> 10,
                " KiB, and all graphs together may have ", bytes_max_ >> 10);
  }
  const std::string graph = "a graph, once a run comes again with the same memory";
  if (counts.saved() >= CudaProgram::kLeastGraphLaunches) return graph;
  return text(kByStep, "it has ", counts.launches + counts.calls, " steps; with the copies beside it ",
              CudaProgram::kLeastGraphLaunches, " or more, ", graph);
}

bool Graphs::is_launched(const Graph& graph, const GraphPlace& place, StreamHandle stream) {
  Status status = bring_up_to_date(graph, place);
  if (status.ok())
    status = device_->check(device_->api.graph_launch(graph.executable, stream), "cuGraphLaunch");
  if (status.ok()) [[likely]]
    return true;
  // If the device is lost, the launches say so. They overwrite all that they read but the run's inputs: what
  // CUDA took of the graph does no harm, since it tells of nothing.
  if (graph.tells()) Tickets::write_nothing(graph.drawn.ticket);
  place.program().count_graph_failure();
  built_.erase_if([&](const GraphKey& key) { return key == place; });
  return false;
}

Status Graphs::bring_up_to_date(const Graph& graph, const GraphPlace& place) const {
  if (graph.tells()) Tickets::write(graph.drawn.ticket, place.end);
  auto node = graph.drawn.copies.begin();
  const auto update = [&](const device::Copy& copy) -> Status {
    CopyNode& now = *node++;
    if (now.node == nullptr || (now.from == copy.from.address() && now.to == copy.to.address())) return {};
    NodeUpdate change(*device_, graph.executable, now.node);
    HEDDLE_TRY(give_noted(*device_, copy, now.ticket, change));
    now.from = copy.from.address();
    now.to = copy.to.address();
    return {};
  };
  HEDDLE_TRY(place.each_copy(place.before, update));
  return place.each_copy(place.after, update);
}

Ref<const Graphs::Graph> Graphs::find(const GraphPlace& place) {
  if (Ref<const Graph> graph = built_.peek(place)) [[likely]]
    return graph;
  if (!is_wanted(place)) return nullptr;
  const trace::Span span("cuda", "graph", place.program().lowered().steps.size());
  Result<Ref<const Graph>> built = built_.get_or_make(place, [&]() -> Result<Built::Made> {
    HEDDLE_TRY_ASSIGN(Ref<const Graph> graph, build(place));
    const uint64_t bytes = graph->bytes;
    return Built::Made(std::move(graph), bytes);
  });
  return built.ok() ? *built : nullptr;
}

bool Graphs::is_wanted(const GraphPlace& place) {
  if (!came_before(GraphHash()(place)) || would_disturb(place.program())) return false;
  const uint64_t bytes = place.bytes();
  if (bytes > bytes_max_) return false;
  if (bytes_->load_relaxed() + bytes <= bytes_max_) return true;
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
  Drawn drawn;
  const auto copy = [&](const device::Copy& each) -> Status {
    const GraphNode before = builder.last();
    const bool tells = drawn.ticket != nullptr && drawn.copies.size() + 1 == place.copies();
    const Address ticket = tells ? drawn.ticket->address() : 0;
    HEDDLE_TRY(give_noted(*device_, each, ticket, builder));
    const GraphNode node = builder.last() == before ? nullptr : builder.last();
    drawn.copies.push_back({node, each.from.address(), each.to.address(), ticket});
    return {};
  };
  const auto made = [&]() -> Result<GraphExec> {
    if (place.tells()) {  // without one the stream tells
      if (Result<Tickets::Lease> ticket = tickets_->take(); ticket.ok()) drawn.ticket = *std::move(ticket);
    }
    HEDDLE_TRY(builder.begin());
    HEDDLE_TRY(place.each_copy(place.before, copy));
    HEDDLE_TRY(place.program().give_steps(place.run, place.flags, builder));
    HEDDLE_TRY(place.each_copy(place.after, copy));
    return builder.finish();
  }();
  if (!made.ok()) {
    place.program().count_graph_failure();
    return made.status();
  }
  struct Unowned {  // until the Graph is made, for which there may be no memory
    const DriverApi& api;
    GraphExec executable;
    ~Unowned() {
      if (executable != nullptr) api.graph_exec_destroy(executable);
    }
  } unowned{device_->api, *made};
  const GraphHandle nodes = drawn.copies.empty() ? nullptr : builder.graph();
  auto graph = std::make_shared<const Graph>(device_, std::move(drawn), nodes, *made, place.bytes(), bytes_);
  unowned.executable = nullptr;
  if (nodes != nullptr) builder.give_away();
  return graph;
}

}  // namespace heddle::cuda
