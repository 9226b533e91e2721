// What the CUDA double does as CUDA does it. What it ends the process for: mistakes_test.cpp.
#include <doctest/doctest.h>

#include "double_fixture.h"

namespace heddle::cuda_double {
namespace {

TEST_CASE("nodes of a graph keep the order that their dependencies ask for, and no other") {
  const Ground ground;
  const Address at = ground.fresh(64);
  std::byte* const seen = ground.pinned(1);
  for (const bool in_line : {true, false}) {
    cuda::GraphExec executable = nullptr;
    api().graph_instantiate(&executable, ground.graph_of_fills(at, 5, in_line), 0);
    api().graph_launch(executable, ground.stream);
    api().copy(reinterpret_cast<Address>(seen), at, 1, ground.stream);
    api().stream_synchronize(ground.stream);
    CHECK(static_cast<int>(*seen) == (in_line ? 5 : 1));
  }
}

TEST_CASE("a launch of more threads than a kernel's own most is refused, as CUDA refuses it") {
  const Ground ground;
  std::byte params[1024] = {};
  const auto launch = [&](unsigned threads) {
    return ground.launch("heddle_product_4x8_f32", params, ground.stream, threads, 48 * 1024);
  };
  CHECK(launch(128) == cuda::kSuccess);
  CHECK(launch(256) == cuda::kInvalidValue);
  api().stream_synchronize(ground.stream);
}

TEST_CASE("a launch of blocks that are no whole clusters is refused, as CUDA refuses it") {
  const Ground ground;
  std::byte params[1024] = {};
  CHECK(ground.launch("heddle_product_few_8x16", params, ground.stream) == cuda::kInvalidValue);
}

// Each way in which CUDA orders streams is one for the double: no false alarm.
TEST_CASE("streams that an event, a query or a synchronisation orders may touch the same memory") {
  const Ground ground;
  const Address at = ground.fresh(64);
  const cuda::StreamHandle other = ground.make_stream();
  cuda::EventHandle event = nullptr;
  api().event_create(&event, cuda::kEventWithoutTiming);

  ground.fill(at, 64, ground.stream);
  api().event_record(event, ground.stream);
  api().stream_wait(other, event, 0);
  ground.fill(at, 64, other);

  api().stream_synchronize(other);
  ground.fill(at, 64, ground.stream);

  while (api().stream_query(ground.stream) != cuda::kSuccess) {
  }
  ground.fill(at, 64, other);

  api().event_record(event, other);
  while (api().event_query(event) != cuda::kSuccess) {
  }
  ground.fill(at, 64, ground.stream);
  CHECK(api().stream_synchronize(ground.stream) == cuda::kSuccess);
  api().stream_destroy(other);
  api().event_destroy(event);
}

TEST_CASE("streams may read the same memory without an order") {
  const Ground ground;
  const Address at = ground.written(64), mine = ground.fresh(64), others = ground.fresh(64);
  const cuda::StreamHandle other = ground.make_stream();
  ground.move(at, mine, ground.stream);
  ground.move(at, others, other);
  CHECK(api().stream_synchronize(ground.stream) == cuda::kSuccess);
  CHECK(api().stream_synchronize(other) == cuda::kSuccess);
  api().stream_destroy(other);
}

}  // namespace
}  // namespace heddle::cuda_double
