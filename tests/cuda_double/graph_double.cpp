#include "tests/cuda_double/graph_double.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <queue>
#include <set>
#include <utility>

#include "base/yield.h"
#include "tests/cuda_double/contexts.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/cuda_double/device_memory.h"
#include "tests/cuda_double/faults.h"
#include "tests/cuda_double/kernel_launch.h"
#include "tests/cuda_double/touches.h"

namespace heddle::cuda_double {
namespace {

using cuda::Code;

struct Node {
  std::function<void(uint64_t number)> run;
  std::vector<size_t> before;  // indices of nodes
  bool is_kernel = false;
};
using Nodes = std::vector<Node>;

struct GraphObject {
  Nodes nodes;
};

struct Executable {
  struct Flights {
    int count = 0;
    const Stream* stream = nullptr;
  };
  std::shared_ptr<const Nodes> nodes;  // of the launches to come
  cuda::GraphHandle drawn = nullptr;   // what it was made of
  Guarded<Flights, Rank::kBuffer> in_flight;
  Atomic<bool> in_hand{false};  // of a thread that calls CUDA with it
  int device = 0;
};

// What a handle is. It is never freed, so no other gets its address.
template <class T>
struct Handle {
  std::shared_ptr<T> object;  // null: destroyed
};
template <class T>
struct Handles {
  Guarded<std::set<Handle<T>*>, Rank::kAllocator> all;

  void* make(std::shared_ptr<T> object) {
    auto* const handle = new Handle<T>{std::move(object)};
    all.lock()->insert(handle);
    return handle;
  }
  std::shared_ptr<T> find(void* handle, const char* what) {
    const auto known = all.lock();
    const auto found = known->find(static_cast<Handle<T>*>(handle));
    if (found == known->end()) stop(what, "there is no such graph");
    if ((*found)->object == nullptr) stop(what, "the graph was destroyed");
    return (*found)->object;
  }
  int live() const {
    const auto known = all.lock();
    return static_cast<int>(
        std::ranges::count_if(*known, [](auto* each) { return each->object != nullptr; }));
  }
  void destroy(void* handle, const char* what) {
    std::shared_ptr<T> object = find(handle, what);
    const auto known = all.lock();
    static_cast<Handle<T>*>(handle)->object = nullptr;
  }
};
template <class T>
Handles<T>& handles() {
  static auto* const of_type = new Handles<T>;  // threads may outlive statics
  return *of_type;
}
// A node's handle: which of its graph's it is, from 1 on.
cuda::GraphNode node_handle(size_t index) { return reinterpret_cast<void*>(index + 1); }

// Of the thread, from here to the end of the call.
class InHand {
 public:
  InHand(Executable& executable, cuda::GraphExec handle, const char* what) : executable_(executable) {
    if (executable_.in_hand.exchange_acq_rel(true)) stop(what, "another thread has the graph in its hands");
    give_way();  // for longer than CUDA has it
    handles<Executable>().find(handle, what);
  }
  ~InHand() { executable_.in_hand.store_release(false); }
  InHand(const InHand&) = delete;
  InHand& operator=(const InHand&) = delete;

 private:
  Executable& executable_;
};

void run(const Nodes& nodes, int device, uint64_t number) {
  std::vector<size_t> awaited(nodes.size());
  std::vector<std::vector<size_t>> after(nodes.size());
  std::priority_queue<size_t> ready;  // the last first
  for (size_t i = 0; i < nodes.size(); ++i) {
    awaited[i] = nodes[i].before.size();
    for (const size_t each : nodes[i].before) after[each].push_back(i);
    if (awaited[i] == 0) ready.push(i);
  }
  while (!ready.empty()) {
    const size_t next = ready.top();
    ready.pop();
    if (!is_context_lost(device)) nodes[next].run(number++);
    for (const size_t each : after[next]) {
      if (--awaited[each] == 0) ready.push(each);
    }
  }
}

Code add_node(cuda::GraphNode* made, GraphObject& graph, const cuda::GraphNode* before, size_t count,
              std::function<void(uint64_t number)> work) {
  Node node{std::move(work), {}, false};
  for (size_t i = 0; i < count; ++i) {
    const auto index = reinterpret_cast<size_t>(before[i]);
    if (index == 0 || index > graph.nodes.size()) return cuda::kInvalidValue;
    node.before.push_back(index - 1);
  }
  *made = node_handle(graph.nodes.size());
  graph.nodes.push_back(std::move(node));
  return cuda::kSuccess;
}

Code add_kernel(cuda::GraphNode* made, cuda::GraphHandle handle, const cuda::GraphNode* before, size_t count,
                const cuda::KernelNode* kernel) {
  require_context("cuGraphAddKernelNode");
  const auto graph = handles<GraphObject>().find(handle, "cuGraphAddKernelNode");
  if (const Code failed = fails(Call::kNode); failed != 0) return failed;
  KernelLaunch launch;
  if (!launch.take(*kernel)) return cuda::kInvalidValue;
  const Code added = add_node(made, *graph, before, count, [launch](uint64_t number) { launch.run(number); });
  if (added == cuda::kSuccess) graph->nodes.back().is_kernel = true;
  return added;
}

// All kernels here wait for what they follow, or stop the process (cluster_run.cpp): the order is the same.
Code add_edges(cuda::GraphHandle handle, const cuda::GraphNode* from, const cuda::GraphNode* to,
               const cuda::GraphEdge* edges, size_t count) {
  constexpr const char* kWhat = "cuGraphAddDependencies";
  require_context(kWhat);
  const auto graph = handles<GraphObject>().find(handle, kWhat);
  if (const Code failed = fails(Call::kEdge); failed != 0) return failed;
  for (size_t i = 0; i < count; ++i) {
    const auto before = reinterpret_cast<size_t>(from[i]), after = reinterpret_cast<size_t>(to[i]);
    if (before == 0 || after <= before || after > graph->nodes.size()) return cuda::kInvalidValue;
    const bool early = edges[i].from_port == 1 && edges[i].to_port == 0 && edges[i].type == 1;
    if (!early || !graph->nodes[before - 1].is_kernel || !graph->nodes[after - 1].is_kernel)
      return cuda::kInvalidValue;
    graph->nodes[after - 1].before.push_back(before - 1);
  }
  return cuda::kSuccess;
}

Code add_child(cuda::GraphNode* made, cuda::GraphHandle handle, const cuda::GraphNode* before, size_t count,
               cuda::GraphHandle child) {
  constexpr const char* kWhat = "cuGraphAddChildGraphNode";
  const int device = current_device(kWhat);
  const auto graph = handles<GraphObject>().find(handle, kWhat);
  if (const Code failed = fails(Call::kNode); failed != 0) return failed;
  const Nodes nodes = handles<GraphObject>().find(child, kWhat)->nodes;
  return add_node(made, *graph, before, count,
                  [nodes, device](uint64_t number) { run(nodes, device, number); });
}

Code begin_capture(cuda::StreamHandle at, int mode) {
  constexpr const char* kWhat = "cuStreamBeginCapture";
  Stream* const stream = stream_of(at, kWhat);
  stream->require_uncaptured(kWhat);
  if (mode != cuda::kRelaxedCapture) stop(kWhat, "a capture that forbids others what they may do");
  if (const Code failed = fails(Call::kBeginCapture); failed != 0) return failed;
  return stream->begin_capture(), cuda::kSuccess;
}

Code end_capture(cuda::StreamHandle at, cuda::GraphHandle* made) {
  std::vector<std::function<void()>> told = stream_of(at, "cuStreamEndCapture")->end_capture();
  *made = nullptr;
  if (const Code failed = fails(Call::kEndCapture); failed != 0) return failed;
  auto graph = std::make_shared<GraphObject>();
  for (auto& work : told) {
    std::vector<size_t> before;
    if (!graph->nodes.empty()) before.push_back(graph->nodes.size() - 1);
    graph->nodes.push_back({[work = std::move(work)](uint64_t) { work(); }, std::move(before), false});
  }
  return *made = handles<GraphObject>().make(std::move(graph)), cuda::kSuccess;
}

Code instantiate(cuda::GraphExec* made, cuda::GraphHandle handle, uint64_t flags) {
  require_context("cuGraphInstantiateWithFlags");
  require_no_capture("cuGraphInstantiateWithFlags");
  const auto graph = handles<GraphObject>().find(handle, "cuGraphInstantiateWithFlags");
  if (const Code failed = fails(Call::kInstantiate); failed != 0) return failed;
  if (flags != 0) return cuda::kInvalidValue;
  const auto executable = std::make_shared<Executable>();
  executable->nodes = std::make_shared<const Nodes>(graph->nodes);
  executable->drawn = handle;
  executable->device = current_device("cuGraphInstantiateWithFlags");
  *made = handles<Executable>().make(executable);
  return cuda::kSuccess;
}

Code set_kernel(cuda::GraphExec handle, cuda::GraphNode node, const cuda::KernelNode* kernel) {
  constexpr const char* kWhat = "cuGraphExecKernelNodeSetParams";
  require_context(kWhat);
  const auto executable = handles<Executable>().find(handle, kWhat);
  const InHand in_hand(*executable, handle, kWhat);
  if (const Code failed = fails(Call::kSetKernel); failed != 0) return failed;
  const auto graph = handles<GraphObject>().find(executable->drawn, kWhat);  // nodes are named by it
  const auto index = reinterpret_cast<size_t>(node);
  KernelLaunch launch;
  if (index == 0 || index > graph->nodes.size() || !launch.take(*kernel)) return cuda::kInvalidValue;
  auto nodes = std::make_shared<Nodes>(*executable->nodes);
  (*nodes)[index - 1].run = [launch](uint64_t number) { launch.run(number); };
  executable->nodes = std::move(nodes);
  return cuda::kSuccess;
}

// The one that runs on this thread, whose host may launch it again from its end on.
thread_local constinit Executable* under_way = nullptr;

Code launch(cuda::GraphExec handle, cuda::StreamHandle at) {
  constexpr const char* kWhat = "cuGraphLaunch";
  Stream* const stream = stream_of(at, kWhat);
  const auto executable = handles<Executable>().find(handle, kWhat);
  require_current(executable->device, kWhat, "the graph is another context's");
  const InHand in_hand(*executable, handle, kWhat);
  if (const Code failed = fails(Call::kGraphLaunch); failed != 0) return failed;
  {
    const auto flights = executable->in_flight.lock();
    if (flights->count > 0 && flights->stream != stream)
      stop(kWhat, "another stream runs the graph: CUDA would let this one wait");
    ++flights->count;
    flights->stream = stream;
  }
  stream->tell(
      [executable, nodes = executable->nodes, number = take_launch_numbers(executable->nodes->size())] {
        under_way = executable.get();
        begin_graph();
        run(*nodes, executable->device, number);
        end_graph();
        end_graph_of_thread();
      });
  return cuda::kSuccess;
}

}  // namespace

void end_graph_of_thread() {
  Executable* const ended = std::exchange(under_way, nullptr);
  if (ended != nullptr) --ended->in_flight.lock()->count;
}

void add_graphs(cuda::DriverApi& api) {
  api.graph_create = [](cuda::GraphHandle* graph, unsigned flags) {
    require_context("cuGraphCreate");
    if (flags != 0) return cuda::kInvalidValue;
    return *graph = handles<GraphObject>().make(std::make_shared<GraphObject>()), cuda::kSuccess;
  };
  api.graph_destroy = [](cuda::GraphHandle graph) {
    require_context("cuGraphDestroy");
    return handles<GraphObject>().destroy(graph, "cuGraphDestroy"), cuda::kSuccess;
  };
  api.graph_add_kernel = add_kernel;
  api.graph_add_edges = add_edges;
  api.graph_add_child = add_child;
  api.begin_capture = begin_capture;
  api.end_capture = end_capture;
  api.graph_instantiate = instantiate;
  api.graph_set_kernel = set_kernel;
  api.graph_launch = launch;
  // What is in flight keeps the nodes until it is over, as with CUDA.
  api.graph_exec_destroy = [](cuda::GraphExec handle) {
    constexpr const char* kWhat = "cuGraphExecDestroy";
    require_context(kWhat);
    const auto executable = handles<Executable>().find(handle, kWhat);
    const InHand in_hand(*executable, handle, kWhat);
    return handles<Executable>().destroy(handle, kWhat), cuda::kSuccess;
  };
}

int live_graphs() { return handles<GraphObject>().live() + handles<Executable>().live(); }

}  // namespace heddle::cuda_double
