// A call that leaves at its deadline while its results are on their way to memory that is not the device's.
#include <doctest/doctest.h>

#include <memory>

#include "base/thread.h"
#include "runtime/runtime.h"
#include "runtime/test_device_fixture.h"

namespace heddle::runtime {
namespace {

using namespace std::chrono_literals;
using device::View;
using test::Rows;
using test::TestDevice;

// Whose runs, times two, begin when the latch opens.
struct Slow {
  explicit Slow(test::TestOptions options) {
    static Atomic<int> next{0};
    options.name = text("foreign-output", next.add_relaxed(1));
    device = std::make_shared<TestDevice>(options);
    device->set_kernel("slow", [this](const device::Run& run) {
      latch.wait();
      const auto* x = reinterpret_cast<const float*>(test::at(run.inputs[0]));
      auto* y = reinterpret_cast<float*>(test::at(run.outputs[0]));
      for (int64_t i = 0; i < run.outputs[0].extents.elements(); ++i) y[i] = 2 * x[i];
      return Status();
    });
    runtime = *Runtime::make(device);
    model = *runtime->load(test::graph_named("slow"));
  }
  test::Latch latch;
  Ref<TestDevice> device;
  Ref<Runtime> runtime;
  Ref<Model> model;
};

std::vector<float> twice_of(std::vector<float> values) {
  for (float& value : values) value *= 2;
  return values;
}

constexpr bool kBindsOrStages[] = {false, true};

TEST_CASE("a call that leaves at its deadline keeps the caller's memory, and copies nothing back") {
  for (const bool binds : kBindsOrStages) {
    CAPTURE(binds);
    Slow s({.asynchronous = true, .binds_caller_memory = binds});
    const auto x = std::make_shared<Rows>(3, 1.0F), y = std::make_shared<Rows>(3, 100.0F);
    const std::vector<float> before = y->values;
    const std::weak_ptr<Rows> input = x, output = y;
    {
      const View in = x->view(), out = y->view();
      Call call{.inputs = {&in, 1}, .outputs = {&out, 1}, .deadline = Deadline::in(1ms)};
      call.keep = std::make_shared<std::pair<Ref<Rows>, Ref<Rows>>>(x, y);
      CHECK(s.runtime->run(*s.model, call).status().code() == Code::deadline);
    }
    CHECK(x.use_count() == 2);  // the run's
    CHECK(y.use_count() == 2);
    CHECK(y->values == before);
    s.latch.open();
    REQUIRE(s.runtime->synchronize().ok());
    test::wait_until([&] { return x.use_count() == 1 && y.use_count() == 1; });
    // What was bound is the run's to write; what goes through a slot is the caller's that has left.
    CHECK(y->values == (binds ? twice_of(x->values) : before));
  }
}

TEST_CASE("a call that comes back for its results after a deadline gets them whole") {
  for (const bool binds : kBindsOrStages) {
    CAPTURE(binds);
    Slow s({.asynchronous = true, .binds_caller_memory = binds});
    const auto x = std::make_shared<Rows>(3, 1.0F), y = std::make_shared<Rows>(3, 100.0F);
    const std::vector<float> before = y->values;
    const View in = x->view(), out = y->view();
    Call call{.inputs = {&in, 1}, .outputs = {&out, 1}};
    call.keep = std::make_shared<std::pair<Ref<Rows>, Ref<Rows>>>(x, y);
    auto started = s.runtime->start(*s.model, call);
    REQUIRE(started.ok());
    CHECK(s.runtime->finish(*started, Deadline::in(1ms)).status().code() == Code::deadline);
    CHECK(y->values == before);
    s.latch.open();
    REQUIRE(s.runtime->finish(*started, Deadline::never()).ok());
    CHECK(y->values == twice_of(x->values));
  }
}

// Memory of another device that the run writes in place: its allocator and its users must know of the run.
TEST_CASE("another device's memory that a run still writes is neither given out again nor read too early") {
  Slow s({.asynchronous = true}), owner({});
  Rows x(3, 1);
  View theirs = *owner.runtime->allocate(ir::DType::kF32, {3, 4});
  const View in = x.view();
  Call call{.inputs = {&in, 1}, .outputs = {&theirs, 1}, .deadline = Deadline::in(1ms)};
  call.keep = std::make_shared<int>(0);  // of the input; a buffer needs none
  CHECK(s.runtime->run(*s.model, call).status().code() == Code::deadline);
  std::vector<device::Point> waits;
  theirs.buffer->collect_waits(false, nullptr, waits);
  CHECK(waits.size() == 1);
  SUBCASE("given up") {
    theirs = View();
    CHECK(owner.runtime->stats().memory.pending > 0);
    owner.runtime->allocator().empty_cache();
    CHECK(owner.device->counts().memory.load_acquire() == 1);
    s.latch.open();
    REQUIRE(s.runtime->synchronize().ok());
    owner.runtime->allocator().empty_cache();
    CHECK(owner.device->counts().memory.load_acquire() == 0);
  }
  SUBCASE("read, by its own device") {
    Rows y(3);
    const View out = y.view();
    const Thread opener("opener", [&] { s.latch.open(); });
    REQUIRE(owner.runtime->copy(**owner.runtime->streams().default_stream(), theirs, out).ok());
    CHECK(y.values == twice_of(x.values));
  }
}

}  // namespace
}  // namespace heddle::runtime
