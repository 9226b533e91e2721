// at_once_fixture.h: a runtime over the test device, for tests of calls that run at once.
#pragma once

#include <doctest/doctest.h>

#include <optional>
#include <string>

#include "runtime/runtime.h"
#include "runtime/test_device_fixture.h"

namespace heddle::runtime::test {

// Beside the test device's kernels, "slow" waits for the latch and "wrong" fails.
struct AtOnceFixture {
  explicit AtOnceFixture(const std::string& name, TestOptions own = {}, const Options& options = {}) {
    static Atomic<int> next{0};
    own.name = text(name, next.add_relaxed(1));
    device = std::make_shared<TestDevice>(own);
    device->set_kernel("slow", [this](const device::Run& run) {
      latch.wait();
      return copy_through(run);
    });
    device->set_kernel("wrong",
                       [](const device::Run&) { return Status::invalid("index 7 is out of range"); });
    runtime = *Runtime::make(device, options);
  }
  Ref<Model> load(const std::string& name, int64_t rows = 2) const {
    auto model = *runtime->load(graph_named(name));
    const Rows like(rows, 0);
    REQUIRE(runtime->compile(*model, {&like.extents, 1}).ok());
    return model;
  }
  static bool is_copy(const std::optional<Result<Runtime::Views>>& result, const Rows& rows) {
    return result.has_value() && result->ok() && (*result)->size() == 1 &&
           values_of((*result)->front()) == rows.values;
  }

  Latch latch;
  Ref<TestDevice> device;
  Ref<Runtime> runtime;
};

}  // namespace heddle::runtime::test
