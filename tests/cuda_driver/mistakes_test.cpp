// Each check of the CUDA double has a program here that is caught.
#include "mistakes_fixture.h"

#include <sys/wait.h>
#include <unistd.h>

#include "base/yield.h"
#include "drivers/cuda/kernels/few_rows.h"

namespace heddle::cuda_double {
namespace {

void synchronize(const Ground& ground) { api().stream_synchronize(ground.stream); }

// ---- contexts

void pop_all() {
  cuda::Context popped = nullptr;
  api().pop_context(&popped);
}

void call_in_forked_child() {
  const pid_t child = fork();
  if (child == 0) {
    void* at = nullptr;
    api().host_allocate(&at, 64, 0);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) std::abort();
}

void pin_without_a_context(const Ground& ground) {
  pop_all();
  ground.pinned(64);
}

void push_for_ever(const Ground& ground) {
  for (int i = 0; i < 100; ++i) api().push_context(ground.context);
}

// ---- what is another context's

cuda::EventHandle make_event() {
  cuda::EventHandle event = nullptr;
  api().event_create(&event, cuda::kEventWithoutTiming);
  return event;
}

void use_stream_of_another_context(const Ground& ground) {
  const Ground other(1);
  synchronize(ground);
}

void record_event_of_another_context(const Ground&) {
  const cuda::EventHandle event = make_event();
  const Ground other(1);
  api().event_record(event, other.stream);
}

void launch_kernel_of_another_context(const Ground& ground) {
  const Ground other(1);
  cuda::MoveParams params = fill_params(other.fresh(64), 1, 0);
  ground.launch("heddle_move_1", &params, other.stream);
}

void launch_graph_of_another_context(const Ground& ground) {
  const cuda::GraphExec graph = ground.graph(ground.fresh(64));
  const Ground other(1);
  api().graph_launch(graph, other.stream);
}

void free_memory_of_another_device(const Ground& ground) {
  const Address at = ground.fresh(64);
  const Ground other(1);
  api().free(at, other.stream);
}

void touch_memory_of_another_device(const Ground& ground) {
  const Address at = ground.written(64);
  const Ground other(1);
  other.fill(at, 1, other.stream);
  synchronize(other);
}

// ---- memory

void write_a_word_of_the_host(const Ground& ground) {
  uint64_t word = 0;
  api().stream_write(ground.stream, reinterpret_cast<Address>(&word), 1, 0);
  synchronize(ground);
}

void copy_beyond_a_block(const Ground& ground) {
  const Address at = ground.written(63);
  api().copy(ground.fresh(63), at, 64, ground.stream);
  synchronize(ground);
}

void write_beyond_a_block(const Ground& ground) {
  const Address at = ground.fresh(3);
  ground.fill(at, 4, ground.stream);
  synchronize(ground);
  api().free(at, ground.stream);
}

void write_before_a_block(const Ground& ground) {
  const Address at = ground.fresh(3);
  cuda::MoveParams params = fill_params(at, 2, 1);
  params.to_strides[0] = -1;
  ground.launch("heddle_move_1", &params, ground.stream);
  synchronize(ground);
  api().free(at, ground.stream);
}

void write_beyond_pinned_memory(const Ground& ground) {
  std::byte* const at = ground.pinned(3);
  ground.fill(reinterpret_cast<Address>(at), 4, ground.stream);
  synchronize(ground);
  api().host_free(at);
}

void free_within_a_block(const Ground& ground) { api().free(ground.fresh(64) + 8, ground.stream); }

void free_twice(const Ground& ground) {
  const Address at = ground.fresh(64);
  const cuda::EventHandle gate = make_held_event();
  api().stream_wait(ground.stream, gate, 0);
  api().free(at, ground.stream);
  api().free(at, ground.stream);
}

void unpin_what_is_not_pinned(const Ground&) {
  uint64_t word = 0;
  api().host_free(&word);
}

void touch_freed_memory(const Ground& ground) {
  const Address at = ground.written(64);
  api().free(at, ground.stream);
  ground.fill(at, 1, ground.stream);
  synchronize(ground);
}

void touch_memory_of_the_host(const Ground& ground) {
  std::byte here{};
  ground.fill(reinterpret_cast<Address>(&here), 1, ground.stream);
  synchronize(ground);
}

void read_by_the_host(const Ground& ground) { MESSAGE(*reinterpret_cast<volatile int*>(ground.written(64))); }

void read_by_a_kernel(const Ground& ground) {
  const Address at = ground.fresh(64);
  ground.move(at, at + 32, ground.stream);
  synchronize(ground);
}

void copy_what_is_unwritten(const Ground& ground) {
  const Address from = ground.fresh(256), to = ground.fresh(256);
  ground.fill(from, 200, ground.stream);
  api().copy(to, from, 256, ground.stream);
  synchronize(ground);
}

void take_too_much_shared_memory(const Ground& ground) {
  std::byte params[1024] = {};  // of no rows
  ground.launch("heddle_softmax_f32", params, ground.stream);
  synchronize(ground);
}

// ---- order

// What the first stream does comes last, and nothing says so to the second.
template <class Then>
void hold_first(const Ground& ground, Then then) {
  const Address at = ground.written(64);
  const cuda::EventHandle gate = make_held_event();
  api().stream_wait(ground.stream, gate, 0);
  ground.fill(at, 64, ground.stream);
  const cuda::StreamHandle other = ground.make_stream();
  then(at, other);
  reach(gate);
  synchronize(ground);
  api().stream_synchronize(other);
}

void fill_without_an_order(const Ground& ground) {
  hold_first(ground, [&](Address at, cuda::StreamHandle other) { ground.fill(at, 64, other); });
}

void read_without_an_order(const Ground& ground) {
  hold_first(ground, [&](Address at, cuda::StreamHandle other) { ground.move(at, ground.fresh(64), other); });
}

void copy_without_an_order(const Ground& ground) {
  hold_first(ground,
             [&](Address at, cuda::StreamHandle other) { api().copy(ground.fresh(64), at, 64, other); });
}

void launch_graph_without_an_order(const Ground& ground) {
  hold_first(ground,
             [&](Address at, cuda::StreamHandle other) { api().graph_launch(ground.graph(at), other); });
}

void free_without_an_order(const Ground& ground) {
  const Address at = ground.fresh(64);
  const cuda::StreamHandle other = ground.make_stream();
  ground.fill(at, 64, other);
  for (const Deadline moment = Deadline::in(std::chrono::milliseconds(100)); !moment.expired();) give_way();
  api().free(at, ground.stream);  // the kernel has run, but nobody asked
}

void unpin_without_an_order(const Ground& ground) {
  std::byte* const at = ground.pinned(64);
  ground.fill(reinterpret_cast<Address>(at), 64, ground.stream);
  for (const Deadline moment = Deadline::in(std::chrono::milliseconds(100)); !moment.expired();) give_way();
  api().host_free(at);
}

void wait_for_no_record(const Ground& ground) { api().stream_wait(ground.stream, make_event(), 0); }

// ---- graphs

void use_unknown_graph(const Ground& ground) {
  int none = 0;
  cuda::GraphExec executable = &none;
  api().graph_launch(executable, ground.stream);
}

void instantiate_destroyed_graph(const Ground& ground) {
  const cuda::GraphHandle graph = ground.graph_of_fills(ground.fresh(64), 2, true);
  cuda::GraphExec executable = nullptr;
  api().graph_destroy(graph);
  api().graph_instantiate(&executable, graph, 0);
}

void launch_destroyed_graph(const Ground& ground) {
  const cuda::GraphExec graph = ground.graph(ground.fresh(64));
  api().graph_launch(graph, ground.stream);  // in flight, it may be destroyed
  api().graph_exec_destroy(graph);
  api().graph_launch(graph, ground.stream);
}

void launch_graph_on_two_streams(const Ground& ground) {
  const cuda::GraphExec graph = ground.graph(ground.fresh(64));
  api().stream_wait(ground.stream, make_held_event(), 0);
  api().graph_launch(graph, ground.stream);
  api().graph_launch(graph, ground.make_stream());
}

void launch_graph_from_two_threads(const Ground& ground) {
  const cuda::GraphExec graph = ground.graph(ground.fresh(64));
  run_together(2, [&](int) {
    api().push_context(ground.context);
    for (int i = 0; i < 100000; ++i) api().graph_launch(graph, ground.stream);
  });
}

// The weights of a product are what the kernel in front of it fills.
void read_weights_too_early(const Ground& ground) {
  using Shape = cuda::Few8x16;
  cuda::ProductParams product;
  product.m = Shape::kRows;
  product.n = Shape::kColumns;
  product.k = product.x_row = product.y_column = 256;
  product.x_column = product.y_row = 1;
  product.y_is_constant = 1;
  product.x = ground.written(4 * Shape::kRows * 256);
  product.y = ground.written(4 * Shape::kColumns * 256);
  product.out = ground.fresh(4 * Shape::kRows * Shape::kColumns);
  cuda::MoveParams weights = fill_params(product.y, int64_t{4} * Shape::kColumns * 256, 0);
  void *of_fill[] = {&weights}, *of_product[] = {&product};
  cuda::KernelNode fill, multiply;
  fill.function = ground.kernel("heddle_move_1");
  fill.params = of_fill;
  multiply.function = ground.kernel("heddle_product_few_8x16");
  multiply.params = of_product;
  multiply.grid_x = cuda::FewRows<Shape>::kCluster;
  multiply.block_x = Shape::kThreads;
  multiply.shared_bytes = Shape::kSharedBytes;
  cuda::GraphHandle graph = nullptr;
  cuda::GraphNode first = nullptr, second = nullptr;
  cuda::GraphExec executable = nullptr;
  api().graph_create(&graph, 0);
  api().graph_add_kernel(&first, graph, nullptr, 0, &fill);
  api().graph_add_kernel(&second, graph, nullptr, 0, &multiply);
  api().graph_add_edges(graph, &first, &second, &cuda::kEarlyEdge, 1);
  api().graph_instantiate(&executable, graph, 0);
  api().graph_launch(executable, ground.stream);
  synchronize(ground);
}

// ---- captures of our own

template <class Ask>
void while_capturing(const Ground& ground, Ask ask) {
  api().begin_capture(ground.stream, cuda::kRelaxedCapture);
  ask();
}

void record_while_capturing(const Ground& ground) {
  while_capturing(ground, [&, event = make_event()] { api().event_record(event, ground.stream); });
}
void write_while_capturing(const Ground& ground) {
  std::byte* const word = ground.pinned(8);
  while_capturing(ground, [&] { api().stream_write(ground.stream, reinterpret_cast<Address>(word), 1, 0); });
}
void end_capture_twice(const Ground& ground) {
  cuda::GraphHandle graph = nullptr;
  while_capturing(ground, [&] { api().end_capture(ground.stream, &graph); });
  api().end_capture(ground.stream, &graph);
}

// ---- captures of others

// In global mode, which is a thread's at first.
template <class Call>
void while_captured(Call call) {
  const ForeignCapture capture;
  call();
}

void query_event_while_captured(const Ground&) {
  while_captured([event = make_event()] { api().event_query(event); });
}
void instantiate_while_captured(const Ground& ground) {
  while_captured([&, at = ground.fresh(64)] { ground.graph(at); });
}
void free_while_captured(const Ground& ground) {
  while_captured([&, at = ground.fresh(64)] { api().free(at, ground.stream); });
}
void unpin_while_captured(const Ground& ground) {
  while_captured([at = ground.pinned(64)] { api().host_free(at); });
}
void make_pool_while_captured(const Ground&) {
  cuda::PoolProps props;
  cuda::MemoryPool pool = nullptr;
  while_captured([&] { api().pool_create(&pool, &props); });
}
void load_while_captured(const Ground& ground) {
  while_captured([module = ground.module]() mutable { api().module_load(&module, image()); });
}

constexpr Mistake kDriverMistakes[] = {
    {"pin without a context", "cuMemHostAlloc: no context is current", pin_without_a_context},
    {"pop without a context", "cuCtxPopCurrent: no context is current",
     [](const Ground&) { pop_all(), pop_all(); }},
    {"push for ever", "contexts are pushed and not popped", push_for_ever},
    {"a call in a forked child", "a forked child", [](const Ground&) { call_in_forked_child(); }},
    {"the null stream", "the null stream", [](const Ground&) { api().stream_synchronize(nullptr); }},
    {"another context's stream", "the stream is another context's", use_stream_of_another_context},
    {"another context's event", "the event is another context's", record_event_of_another_context},
    {"another context's kernel", "not of the current context's module", launch_kernel_of_another_context},
    {"another context's graph", "the graph is another context's", launch_graph_of_another_context},
    {"a free of another device's memory", "not of the stream's device", free_memory_of_another_device},
    {"a kernel on another device's memory", "touches memory of another device",
     touch_memory_of_another_device},
    {"a word of the host", "memory of the host that is not pinned", write_a_word_of_the_host},
    {"a copy beyond a block", "an address that is not allocated", copy_beyond_a_block},
    {"a write beyond a block", "something was written beyond the block", write_beyond_a_block},
    {"a write before a block", "something was written beyond the block", write_before_a_block},
    {"a write beyond pinned memory", "something was written beyond the block", write_beyond_pinned_memory},
    {"a free within a block", "cuMemFreeAsync: no allocation begins there", free_within_a_block},
    {"a second free", "cuMemFreeAsync: no allocation begins there", free_twice},
    {"unpinning what is not pinned", "cuMemFreeHost: no allocation begins there", unpin_what_is_not_pinned},
    {"a kernel on freed memory", "touches memory that is not allocated", touch_freed_memory},
    {"a kernel on memory of the host", "or of the host and not pinned", touch_memory_of_the_host},
    {"the host reads the device's memory", "", read_by_the_host},
    {"a kernel reads unwritten memory", "reads memory that nothing has written", read_by_a_kernel},
    {"a copy of unwritten memory", "from: memory that nothing has written", copy_what_is_unwritten},
    {"too much shared memory", "more shared memory than the launch gave", take_too_much_shared_memory},
    {"writes without an order", "nothing orders two streams", fill_without_an_order},
    {"a read without an order", "nothing orders two streams", read_without_an_order},
    {"a copy without an order", "nothing orders two streams", copy_without_an_order},
    {"a graph without an order", "nothing orders two streams", launch_graph_without_an_order},
    {"a free without an order", "work that uses the memory may not be over", free_without_an_order},
    {"unpinning without an order", "cuMemFreeHost: work that uses the memory", unpin_without_an_order},
    {"a wait for no record", "the event was never recorded", wait_for_no_record},
    {"an unknown graph", "there is no such graph", use_unknown_graph},
    {"a destroyed graph", "cuGraphInstantiateWithFlags: the graph was destroyed",
     instantiate_destroyed_graph},
    {"a destroyed executable graph", "cuGraphLaunch: the graph was destroyed", launch_destroyed_graph},
    {"a graph on two streams", "another stream runs the graph", launch_graph_on_two_streams},
    {"a graph in two threads", "another thread has the graph in its hands", launch_graph_from_two_threads},
    {"weights that a graph writes, read too early", "and has not waited for them", read_weights_too_early},
    {"querying a captured stream", "cuStreamQuery: the stream is captured",
     [](const Ground& ground) { while_capturing(ground, [&] { api().stream_query(ground.stream); }); }},
    {"synchronising a captured stream", "cuStreamSynchronize: the stream is captured",
     [](const Ground& ground) { while_capturing(ground, [&] { synchronize(ground); }); }},
    {"capturing a captured stream", "cuStreamBeginCapture: the stream is captured",
     [](const Ground& ground) { while_capturing(ground, [&] { api().begin_capture(ground.stream, 2); }); }},
    {"recording in a captured stream", "cuEventRecord: the stream is captured", record_while_capturing},
    {"writing in a captured stream", "cuStreamWriteValue64: the stream is captured", write_while_capturing},
    {"a capture that hinders others", "a capture that forbids others what they may do",
     [](const Ground& ground) { api().begin_capture(ground.stream, 0); }},
    {"ending a capture twice", "cuStreamEndCapture: the stream is not captured", end_capture_twice},
    {"pinning beside a capture", "cuMemHostAlloc: a stranger captures",
     [](const Ground& ground) { while_captured([&] { ground.pinned(64); }); }},
    {"allocating beside a capture", "cuMemAllocFromPoolAsync: a stranger captures",
     [](const Ground& ground) { while_captured([&] { ground.fresh(64); }); }},
    {"synchronising beside a capture", "cuStreamSynchronize: a stranger captures",
     [](const Ground& ground) { while_captured([&] { synchronize(ground); }); }},
    {"querying a stream beside a capture", "cuStreamQuery: a stranger captures",
     [](const Ground& ground) { while_captured([&] { api().stream_query(ground.stream); }); }},
    {"querying an event beside a capture", "cuEventQuery: a stranger captures", query_event_while_captured},
    {"instantiating beside a capture", "cuGraphInstantiateWithFlags: a stranger", instantiate_while_captured},
    {"freeing beside a capture", "cuMemFreeAsync: a stranger captures", free_while_captured},
    {"unpinning beside a capture", "cuMemFreeHost: a stranger captures", unpin_while_captured},
    {"making a pool beside a capture", "cuMemPoolCreate: a stranger captures", make_pool_while_captured},
    {"trimming a pool beside a capture", "cuMemPoolTrimTo: a stranger captures",
     [](const Ground&) { while_captured([] { api().pool_trim(nullptr, 0); }); }},
    {"unloading kernels beside a capture", "cuModuleUnload: a stranger captures",
     [](const Ground& ground) { while_captured([&] { api().module_unload(ground.module); }); }},
    {"loading kernels beside a capture", "cuModuleLoadData: a stranger captures", load_while_captured},
};

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
// Two blocks, each element to one place.
void write_one_place_from_two_blocks(const Ground& ground) {
  cuda::MoveParams params = fill_params(ground.fresh(1), 64, 1);
  params.to_strides[0] = 0;
  void* pointers[] = {&params};
  api().launch(ground.kernel("heddle_move_1"), 2, 1, 1, 32, 1, 1, 0, ground.stream, pointers, nullptr);
  synchronize(ground);
}

constexpr Mistake kRaces[] = {
    {"blocks that write one place", "ThreadSanitizer: data race", write_one_place_from_two_blocks}};

TEST_CASE("race" * doctest::skip()) { run_mistake(kRaces); }

TEST_CASE("blocks of a launch that touch the same memory are a race for the thread sanitizer") {
  check_caught(kRaces, "race");
}
#endif
#endif

TEST_CASE("mistake" * doctest::skip()) { run_mistake(kDriverMistakes); }

TEST_CASE("what CUDA would leave undefined ends the process, which says why") {
  check_caught(kDriverMistakes, "mistake");
}

}  // namespace
}  // namespace heddle::cuda_double
