// What becomes of graphs that fail, of their device and in a forked child.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/child_fixture.h"
#include "tests/cuda_driver/graphs_fixture.h"

namespace heddle::cuda {
namespace {

using namespace graphs_fixture;  // NOLINT

TEST_CASE("a graph that fails three times is asked for no more: runs are launched, and none is lost") {
  const ir::Tensor x = rows_of(4, 1), wanted = launched_directly(x);
  for (const Call call : {Call::kNode, Call::kEdge, Call::kInstantiate, Call::kGraphLaunch}) {
    for (const heddle::cuda::Code code : {kOutOfMemory, kInvalidValue}) {
      CAPTURE(static_cast<int>(call));
      CAPTURE(code);
      const auto device = device_with_graphs();
      const auto program = layers(*device, 4);
      const Place place = place_of(*device, *program, {x});
      Session session(*device);
      const int live = cuda_double::live_graphs();
      cuda_double::refuse(call, code, 0, 1000);
      for (int i = 0; i < 10; ++i)
        CHECK(conformance::same_bits(result_at(*device, session, program, place), wanted));
      CHECK(calls_of(call) == static_cast<int>(Graphs::kMostFailures));
      CHECK(of_cuda(program).graph_failures() == Graphs::kMostFailures);
      CHECK(cuda_double::live_graphs() == live);
      CHECK(device->lost().ok());
      // Another program is tried for itself.
      cuda_double::forget_faults();
      const auto other = layers(*device, 4);
      for (int i = 0; i < 3; ++i)
        CHECK(conformance::same_bits(result_at(*device, session, other, place), wanted));
      CHECK(calls_of(Call::kGraphLaunch) == 2);
    }
  }
}

TEST_CASE("a graph that fails once is built at the next run") {
  const auto device = device_with_graphs();
  const auto program = layers(*device, 4);
  const Place place = place_of(*device, *program, {rows_of(4, 1)});
  Session session(*device);
  cuda_double::refuse(Call::kInstantiate, kOutOfMemory, 0, 1);
  for (int i = 0; i < 4; ++i) REQUIRE(run_at(session, program, place).ok());
  CHECK(calls_of(Call::kInstantiate) == 2);
  CHECK(calls_of(Call::kGraphLaunch) == 2);
}

TEST_CASE("a device that is lost while a graph is built or launched is lost by its name") {
  for (const Call call : {Call::kNode, Call::kEdge, Call::kInstantiate, Call::kGraphLaunch}) {
    CAPTURE(static_cast<int>(call));
    const auto device = device_with_graphs();
    const auto program = layers(*device, 4);
    const Place place = place_of(*device, *program, {rows_of(4, 1)});
    Session session(*device);
    REQUIRE(run_at(session, program, place).ok());
    cuda_double::refuse(call, kIllegalAddress, 0, 1);
    const Status lost = run_at(session, program, place);
    CHECK(lost.code() == heddle::Code::device_lost);
    CHECK(lost.message().find("CUDA_ERROR_ILLEGAL_ADDRESS") != std::string::npos);
    CHECK(device->lost().code() == heddle::Code::device_lost);
    CHECK(run_at(session, program, place).code() == heddle::Code::device_lost);
  }
  cuda_double::forget_faults();
}

TEST_CASE("a forked child leaves the graphs of its parent alone") {
  if (!test::kForksWithThreads) return;
  auto device = device_with_graphs();
  auto program = layers(*device, 4);
  auto place = std::make_unique<Place>(place_of(*device, *program, {rows_of(4, 1)}));
  auto session = std::make_unique<Session>(*device);
  for (int i = 0; i < 2; ++i) REQUIRE(run_at(*session, program, *place).ok());
  CHECK(calls_of(Call::kInstantiate) == 1);
  const pid_t child = fork();
  if (child == 0) {
    session.reset();
    place.reset();
    program.reset();
    device.reset();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(run_at(*session, program, *place).ok());
}

}  // namespace
}  // namespace heddle::cuda
