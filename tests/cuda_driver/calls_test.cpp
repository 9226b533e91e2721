// Which calls of CUDA a model costs, counted by the double.
#include <numeric>

#include "runtime/runtime.h"
#include "tests/cuda_driver/graphs_fixture.h"

namespace heddle::cuda {
namespace {

using namespace graphs_fixture;  // NOLINT

// Of those that wait for the device or for its memory.
int slow_calls() {
  constexpr Call kSlow[] = {Call::kAllocate, Call::kPin, Call::kFree, Call::kTrim, Call::kSynchronize};
  return std::accumulate(std::begin(kSlow), std::end(kSlow), 0,
                         [](int sum, Call call) { return sum + calls_of(call); });
}

Result<Ref<const device::Module>> load_layers(device::Device& device) {
  ir::Builder b;
  ir::ValueId x = b.input("x", {ir::DType::kF32, {ir::Dim::symbol("rows"), kWidth}});
  for (const uint32_t seed : {1u, 2u, 3u})
    x = *b.node("MatMul", {x, b.constant(random_tensor(ir::DType::kF32, {kWidth, kWidth}, seed))});
  b.output(*b.node("Softmax", {x}));
  return device.load(*b.take(), {}, device::plain_source(device), NoLocksHeld());
}

TEST_CASE(
    "a run at addresses that it knows allocates nothing and waits for nothing, launched or as a graph") {
  for (const uint64_t graph_bytes : {0, 64 << 20}) {
    CAPTURE(graph_bytes);
    const auto device = device_of({.graph_bytes = graph_bytes});
    const auto program = layers(*device, 5);
    const Place place = place_of(*device, *program, {rows_of(5, 1)});
    Session session(*device);
    for (int i = 0; i < 3; ++i) REQUIRE(run_at(session, program, place).ok());
    const int before = slow_calls(), launches = calls_of(Call::kLaunch),
              graphs = calls_of(Call::kGraphLaunch);
    constexpr int kRuns = 10;
    for (int i = 0; i < kRuns; ++i) REQUIRE(run_at(session, program, place).ok());
    CHECK(slow_calls() == before);
    CHECK(calls_of(Call::kGraphLaunch) - graphs == (graph_bytes == 0 ? 0 : kRuns));
    CHECK(calls_of(Call::kLaunch) - launches == (graph_bytes == 0 ? kRuns * launches_of(program) : 0));
  }
}

TEST_CASE("weights go to the device once, when the model is loaded, whatever shapes it is used with") {
  const auto device = device_of({});
  const auto module = load_layers(*device);
  REQUIRE(module.ok());
  CHECK(calls_of(Call::kCopy) == 3);
  for (const int64_t rows : {1, 3, 64}) {
    const ir::Tensor x = rows_of(rows, 1);
    const auto program = conformance::compile(**module, {x});
    REQUIRE(program.ok());
    REQUIRE(Session(*device).run(*program, std::vector{x}).ok());
  }
  CHECK(calls_of(Call::kCopy) == 3);
}

TEST_CASE("a model whose weights do not fit is refused before anything goes to the device") {
  const auto device = device_of({});
  cuda_double::refuse(Call::kAllocate, kOutOfMemory, 0, 2);  // again once CUDA's cache is empty
  const Status status = load_layers(*device).status();
  CHECK(status.code() == heddle::Code::exhausted);
  CHECK(status.message().find("are free") != std::string::npos);
  CHECK(calls_of(Call::kCopy) == 0);
  CHECK(calls_of(Call::kPin) == 0);
  CHECK(load_layers(*device).ok());
}

TEST_CASE("memory that runs out is told with what was asked for, what is held and what is free") {
  const auto runtime = runtime::Runtime::make(device_of({}));
  REQUIRE(runtime.ok());
  const auto held = (*runtime)->allocate(uint64_t{1} << 20);
  REQUIRE(held.ok());
  cuda_double::refuse(Call::kAllocate, kOutOfMemory, 0, 100);
  const Status status = (*runtime)->allocate(uint64_t{4} << 20).status();
  cuda_double::forget_faults();
  CHECK(status.code() == heddle::Code::exhausted);
  for (const char* words : {"has no 4194304 bytes", "1048576 in use", "are free"})
    CHECK_MESSAGE(status.message().find(words) != std::string::npos, status.message());
}

}  // namespace
}  // namespace heddle::cuda
