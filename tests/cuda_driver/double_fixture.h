// double_fixture.h: programs that call the double as a driver does, without one.
#pragma once

#include <vector>

#include "drivers/cuda/kernels/map.h"
#include "drivers/cuda/strides.h"
#include "tests/cuda_double/contexts.h"
#include "tests/cuda_double/cuda_double.h"

namespace heddle::cuda_double {

using cuda::Address;

inline cuda::MoveParams fill_params(Address to, int64_t count, uint64_t value) {
  cuda::MoveParams params = cuda::flat_move(count);
  params.to = to;
  params.value = value;
  return params;
}

// A context that is current while it lives, the kernels, and a stream.
struct Ground {
  explicit Ground(int its_device = 0) : device(its_device) {
    api().primary_retain(&context, device);
    api().push_context(context);
    api().module_load(&module, image());
    stream = make_stream();
  }
  ~Ground() {
    api().stream_destroy(stream);
    cuda::Context popped = nullptr;
    api().pop_context(&popped);
  }
  Ground(const Ground&) = delete;
  Ground& operator=(const Ground&) = delete;

  cuda::StreamHandle make_stream() const {
    cuda::StreamHandle made = nullptr;
    api().stream_create(&made, cuda::kNonBlockingStream);
    return made;
  }
  cuda::Function kernel(const char* symbol) const {
    cuda::Function function = nullptr;
    api().module_function(&function, module, symbol);
    return function;
  }
  cuda::Code launch(const char* symbol, void* params, cuda::StreamHandle on, unsigned threads = 32,
                    unsigned shared_bytes = 0) const {
    void* pointers[] = {params};
    return api().launch(kernel(symbol), 1, 1, 1, threads, 1, 1, shared_bytes, on, pointers, nullptr);
  }
  Address fresh(uint64_t bytes) const {
    Address at = 0;
    api().allocate(&at, bytes, nullptr, stream);
    return at;
  }
  Address written(uint64_t bytes) const {
    const Address at = fresh(bytes);
    fill(at, static_cast<int64_t>(bytes), stream);
    api().stream_synchronize(stream);
    return at;
  }
  std::byte* pinned(uint64_t bytes) const {
    void* at = nullptr;
    api().host_allocate(&at, bytes, 0);
    return static_cast<std::byte*>(at);
  }
  void fill(Address at, int64_t bytes, cuda::StreamHandle on, uint64_t value = 1) const {
    cuda::MoveParams params = fill_params(at, bytes, value);
    launch("heddle_move_1", &params, on);
  }
  void move(Address from, Address to, cuda::StreamHandle on) const {  // one byte
    cuda::MoveParams params = cuda::flat_move(1);
    params.from = from;
    params.to = to;
    launch("heddle_move_1", &params, on);
  }
  // Fills of one byte at `at` with 1, 2, ..., in a line or without an order.
  cuda::GraphHandle graph_of_fills(Address at, int nodes, bool in_line) const {
    cuda::GraphHandle graph = nullptr;
    api().graph_create(&graph, 0);
    cuda::GraphNode before = nullptr;
    for (int i = 1; i <= nodes; ++i) {
      cuda::MoveParams params = fill_params(at, 1, static_cast<uint64_t>(i));
      void* pointers[] = {&params};
      cuda::KernelNode node;
      node.function = kernel("heddle_move_1");
      node.params = pointers;
      const bool first = before == nullptr || !in_line;
      api().graph_add_kernel(&before, graph, &before, first ? 0 : 1, &node);
    }
    return graph;
  }
  cuda::GraphExec graph(Address at) const {
    cuda::GraphExec executable = nullptr;
    api().graph_instantiate(&executable, graph_of_fills(at, 2, true), 0);
    return executable;
  }

  const int device;
  cuda::Context context = nullptr;
  cuda::ModuleHandle module = nullptr;
  cuda::StreamHandle stream = nullptr;
};

}  // namespace heddle::cuda_double
