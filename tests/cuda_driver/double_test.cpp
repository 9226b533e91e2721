// Each check of the CUDA double has a program here that is caught.
#include <doctest/doctest.h>

#include <csignal>

#include "base/thread.h"
#include "drivers/cuda/kernels/map.h"
#include "drivers/cuda/strides.h"
#include "tests/child_fixture.h"
#include "tests/cuda_double/cuda_double.h"

namespace heddle::cuda_double {
namespace {

using cuda::Address;

// A context that is current, and a stream.
struct Ground {
  Ground() {
    signal(SIGABRT, SIG_DFL);
    api().primary_retain(&context, 0);
    api().push_context(context);
    api().stream_create(&stream, cuda::kNonBlockingStream);
  }
  void launch(const char* symbol, void* params, unsigned shared_bytes) const {
    cuda::ModuleHandle module = nullptr;
    cuda::Function function = nullptr;
    api().module_load(&module, image());
    api().module_function(&function, module, symbol);
    void* pointers[] = {params};
    api().launch(function, 1, 1, 1, 32, 1, 1, shared_bytes, stream, pointers, nullptr);
    api().stream_synchronize(stream);
  }
  cuda::Context context = nullptr;
  cuda::StreamHandle stream = nullptr;
};

TEST_CASE("mistake: no context is current" * doctest::skip()) {
  const Ground ground;
  api().pop_context(&const_cast<Ground&>(ground).context);
  void* at = nullptr;
  api().host_allocate(&at, 64, 0);
}

TEST_CASE("mistake: the null stream" * doctest::skip()) {
  const Ground ground;
  api().stream_synchronize(nullptr);
}

TEST_CASE("mistake: memory of the host that is not pinned" * doctest::skip()) {
  const Ground ground;
  uint64_t word = 0;
  api().stream_write(ground.stream, reinterpret_cast<Address>(&word), 1, 0);
  api().stream_synchronize(ground.stream);
}

TEST_CASE("mistake: a copy beyond an allocation" * doctest::skip()) {
  const Ground ground;
  Address at = 0;
  api().allocate(&at, 64, nullptr, ground.stream);
  api().copy(at, at + 8, 64, ground.stream);
  api().stream_synchronize(ground.stream);
}

TEST_CASE("mistake: a free of what was not allocated" * doctest::skip()) {
  const Ground ground;
  Address at = 0;
  api().allocate(&at, 64, nullptr, ground.stream);
  api().free(at + 8, ground.stream);
}

TEST_CASE("mistake: a wait for an event that was never recorded" * doctest::skip()) {
  const Ground ground;
  cuda::EventHandle event = nullptr;
  api().event_create(&event, cuda::kEventWithoutTiming);
  api().stream_wait(ground.stream, event, 0);
}

TEST_CASE("mistake: more shared memory than the launch gave" * doctest::skip()) {
  const Ground ground;
  Address at = 0;
  api().allocate(&at, 256, nullptr, ground.stream);
  std::byte params[1024] = {};  // of no rows
  ground.launch("heddle_softmax_f32", params, 0);
}

// A graph of `nodes` fills of one byte at `at` with 1, 2, ..., in a line or without an order.
cuda::GraphHandle graph_of_fills(Address at, int nodes, bool in_line) {
  cuda::GraphHandle graph = nullptr;
  api().graph_create(&graph, 0);
  cuda::Function function = nullptr;
  api().module_function(&function, nullptr, "heddle_move_1");
  cuda::GraphNode before = nullptr;
  for (int i = 1; i <= nodes; ++i) {
    const std::vector<int64_t> one{1};
    cuda::MoveParams params = cuda::move_params(one, one, one);
    params.to = at;
    params.value = static_cast<uint64_t>(i);
    void* pointers[] = {&params};
    cuda::KernelNode kernel;
    kernel.function = function;
    kernel.params = pointers;
    const bool first = before == nullptr || !in_line;
    api().graph_add_kernel(&before, graph, &before, first ? 0 : 1, &kernel);
  }
  return graph;
}

struct GraphGround : Ground {
  GraphGround() {
    api().allocate(&at, 64, nullptr, stream);
    graph = graph_of_fills(at, 2, true);
    api().graph_instantiate(&executable, graph, 0);
  }
  Address at = 0;
  cuda::GraphHandle graph = nullptr;
  cuda::GraphExec executable = nullptr;
};

TEST_CASE("mistake: a graph that was destroyed" * doctest::skip()) {
  GraphGround ground;
  api().graph_destroy(ground.graph);
  api().graph_instantiate(&ground.executable, ground.graph, 0);
}

TEST_CASE("mistake: a launch of a graph that was destroyed" * doctest::skip()) {
  const GraphGround ground;
  api().graph_launch(ground.executable, ground.stream);  // in flight, it may be destroyed
  api().graph_exec_destroy(ground.executable);
  api().graph_launch(ground.executable, ground.stream);
}

TEST_CASE("mistake: a graph that another stream runs" * doctest::skip()) {
  const GraphGround ground;
  cuda::StreamHandle other = nullptr;
  api().stream_create(&other, cuda::kNonBlockingStream);
  api().stream_wait(ground.stream, make_held_event(), 0);
  api().graph_launch(ground.executable, ground.stream);
  api().graph_launch(ground.executable, other);
}

TEST_CASE("mistake: a graph in the hands of two threads" * doctest::skip()) {
  const GraphGround ground;
  run_together(2, [&](int) {
    api().push_context(ground.context);
    for (int i = 0; i < 100000; ++i) api().graph_launch(ground.executable, ground.stream);
  });
}

TEST_CASE("mistake: the host reads memory of the device" * doctest::skip()) {
  signal(SIGSEGV, SIG_DFL);
  const Ground ground;
  Address at = 0;
  api().allocate(&at, 64, nullptr, ground.stream);
  MESSAGE(*reinterpret_cast<volatile int*>(at));
}

TEST_CASE("what CUDA would leave undefined ends the process, which says why") {
  struct Caught {
    const char *program, *why;
  };
  for (const Caught& each : {
           Caught{"no context is current", "no context is current"},
           {"the null stream", "the null stream"},
           {"memory of the host that is not pinned", "memory of the host that is not pinned"},
           {"a copy beyond an allocation", "an address that is not allocated"},
           {"a free of what was not allocated", "no allocation begins there"},
           {"a wait for an event that was never recorded", "the event was never recorded"},
           {"more shared memory than the launch gave", "more shared memory than the launch gave"},
           {"a graph that was destroyed", "cuGraphInstantiateWithFlags: the graph was destroyed"},
           {"a launch of a graph that was destroyed", "cuGraphLaunch: the graph was destroyed"},
           {"a graph that another stream runs", "another stream runs the graph"},
           {"a graph in the hands of two threads", "another thread has the graph in its hands"},
           {"the host reads memory of the device", ""},
       }) {
    CAPTURE(each.program);
    const test::Child child = test::run_child(std::string("mistake: ") + each.program);
    CHECK((child.signal != 0 || child.exit_code != 0));
    CHECK(child.said.find(each.why) != std::string::npos);
  }
}

TEST_CASE("nodes of a graph keep the order that their dependencies ask for, and no other") {
  const Ground ground;
  Address at = 0;
  api().allocate(&at, 64, nullptr, ground.stream);
  void* seen = nullptr;
  api().host_allocate(&seen, 1, 0);
  for (const bool in_line : {true, false}) {
    cuda::GraphExec executable = nullptr;
    api().graph_instantiate(&executable, graph_of_fills(at, 5, in_line), 0);
    api().graph_launch(executable, ground.stream);
    api().copy(reinterpret_cast<Address>(seen), at, 1, ground.stream);
    api().stream_synchronize(ground.stream);
    CHECK(static_cast<int>(*static_cast<std::byte*>(seen)) == (in_line ? 5 : 1));
  }
  cuda::Context before = nullptr;
  api().pop_context(&before);
}

TEST_CASE("a launch of more threads than a kernel's own most is refused, as CUDA refuses it") {
  const Ground ground;
  cuda::Function function = nullptr;
  REQUIRE(api().module_function(&function, nullptr, "heddle_product_4x8_f32") == cuda::kSuccess);
  std::byte params[1024] = {};
  void* pointers[] = {params};
  const auto launch = [&](unsigned threads) {
    return api().launch(function, 1, 1, 1, threads, 1, 1, 48 * 1024, ground.stream, pointers, nullptr);
  };
  CHECK(launch(128) == cuda::kSuccess);
  CHECK(launch(256) == cuda::kInvalidValue);
  api().stream_synchronize(ground.stream);
  cuda::Context before = nullptr;
  api().pop_context(&before);
}

}  // namespace
}  // namespace heddle::cuda_double
