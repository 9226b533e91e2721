// held_fixture.h: a runtime on a test device, with a model whose runs last for as long as a test wants.
#pragma once

#include <doctest/doctest.h>

#include <utility>

#include "runtime/runtime.h"
#include "runtime/test_device_fixture.h"

namespace heddle::runtime::test {

inline const Deadline kAtOnce = Deadline::at(TimePoint());

struct HeldFixture {
  // Every device has a name of its own, and with it a Governor.
  explicit HeldFixture(TestOptions options) {
    static Atomic<int> next{0};
    options.name = text(options.name, '-', next.add_relaxed(1));
    device = std::make_shared<TestDevice>(std::move(options));
    device->set_kernel("held", [this](const device::Run& run) {
      latch.wait();
      return copy_through(run);
    });
    device->set_copy([this] {
      if (hold_copies.load_acquire()) latch.wait();
    });
    runtime = *Runtime::make(device, {});
    held = *runtime->load(graph_named("held"));
    lease = *runtime->streams().lease();
    x = *runtime->allocate(ir::DType::kF32, {1, 4});
    REQUIRE(runtime->fill(a(), x, 5).ok());
    REQUIRE(runtime->synchronize().ok());
  }
  Stream& a() { return *lease; }

  Latch latch;                      // runs of `held` end when it is opened
  Atomic<bool> hold_copies{false};  // copies and fills wait for it, too
  Ref<TestDevice> device;
  Ref<Runtime> runtime;
  Ref<Model> held;
  StreamLease lease;
  device::View x;  // fives
};

}  // namespace heddle::runtime::test
