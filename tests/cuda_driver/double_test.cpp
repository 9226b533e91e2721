// Each check of the CUDA double has a program here that is caught.
#include <doctest/doctest.h>

#include <csignal>

#include "drivers/cuda/kernels/map.h"
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
  std::byte params[1024] = {};  // of a reduction that makes nothing
  ground.launch("heddle_reduce_sum_f32", params, 0);
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
           {"the host reads memory of the device", ""},
       }) {
    CAPTURE(each.program);
    const test::Child child = test::run_child(std::string("mistake: ") + each.program);
    CHECK((child.signal != 0 || child.exit_code != 0));
    CHECK(child.said.find(each.why) != std::string::npos);
  }
}

}  // namespace
}  // namespace heddle::cuda_double
