// A warm call whose n-th allocation fails, for every n: it is refused or thrown out of, nothing leaks,
// and lane, stream and model serve the next call.
#include <doctest/doctest.h>

#include <new>
#include <vector>

#include "drivers/host/host_device.h"
#include "ir/builder.h"
#include "runtime/runtime.h"
#include "runtime/test_device_fixture.h"
#include "tests/host_runtime/out_of_memory_fixture.h"

namespace heddle::host {
namespace {

using device::View;
using ir::DType;
using runtime::test::Rows;
using test::fails_in;
using test::living;

// With steps of several kinds: a product, a softmax, a sort, which work in memory of their own, and a gather.
ir::Graph graph_of_many_steps() {
  ir::Builder b("many");
  const ir::ValueId x = b.input("x", {DType::kF32, {ir::Dim::symbol("batch"), 4}});
  ir::Tensor weight = ir::Tensor::zeros(DType::kF32, {4, 4});
  for (int64_t i = 0; i < 16; ++i) weight.set(i, 0.1 * static_cast<double>(i % 5));
  const ir::ValueId hidden = *b.node("Softmax", {*b.node("MatMul", {x, b.constant(weight)})});
  const ir::ValueId last = *b.node("CumSum", {hidden, b.constant(ir::Tensor::of_i64({1}))});
  b.output(*b.node("Gather", {last, b.constant(ir::Tensor::of_i64({3, 0}))}, {{"axis", int64_t{1}}}), "y");
  return *b.take();
}

struct Warm {
  Warm() : runtime(*runtime::Runtime::make(*make_host_device({.threads = 1}))) {
    model = *runtime->load(graph_of_many_steps());
  }
  Result<std::vector<View>> run(const View& view, runtime::Stream* stream) {
    runtime::Call call;
    call.inputs = {&view, 1};
    call.stream = stream;
    return runtime->run(*model, call);
  }
  std::vector<float> values(const View& view, runtime::Stream* stream) {
    const auto y = run(view, stream);
    REQUIRE_MESSAGE(y.ok(), to_string(y.status()));
    return runtime::test::values_of(y->front());
  }
  Ref<runtime::Runtime> runtime;
  Ref<runtime::Model> model;
};

TEST_CASE("memory that the host cannot remember for reuse goes back to the driver") {
  Warm w;
  runtime::Allocator& allocator = w.runtime->allocator();
  for (const uint64_t bytes : {uint64_t{64}, uint64_t{5000}, uint64_t{3} << 20}) {
    CAPTURE(bytes);
    allocator.empty_cache();
    const auto before = allocator.stats();
    for (int64_t n = 1; n <= 3; ++n) {
      Ref<device::Buffer> buffer = *w.runtime->allocate(bytes);
      fails_in = n;
      buffer = nullptr;  // noexcept: it cannot say so
      fails_in = 0;
      const auto after = allocator.stats();
      CHECK(after.allocated == before.allocated);
      CHECK(after.reserved == after.allocated + after.cached);
    }
    allocator.empty_cache();
    CHECK(allocator.stats().reserved == before.reserved);
  }
}

TEST_CASE("a warm call whose n-th allocation fails leaves nothing behind, for every n") {
  Warm w;
  const auto lease = w.runtime->streams().lease();
  REQUIRE(lease.ok());
  Rows rows(3, 1);
  for (const bool with_stream : {false, true}) {
    for (const bool strided : {false, true}) {  // through a slot
      CAPTURE(with_stream);
      CAPTURE(strided);
      View view = rows.view();
      if (strided) view.strides[0] = -4, view.callers += 2 * 4 * sizeof(float);
      runtime::Stream* const stream = with_stream ? &*lease->stream() : nullptr;
      const std::vector<float> wanted = w.values(view, stream);
      for (int warm = 0; warm < 3; ++warm) CHECK(w.values(view, stream) == wanted);
      const uint64_t allocated = w.runtime->stats().memory.allocated;
      const int64_t living_before = living;
      int64_t n = 0;
      for (bool failed = true; failed;) {
        ++n;
        CAPTURE(n);
        fails_in = n;
        try {
          const auto y = w.run(view, stream);
          failed = fails_in == 0;
          fails_in = 0;
          CHECK((!failed || y.ok() || y.status().code() == Code::exhausted));
          if (y.ok()) CHECK(runtime::test::values_of(y->front()) == wanted);
        } catch (const std::bad_alloc&) {
          fails_in = 0;  // which the public API turns into exhausted
        }
        const auto stats = w.runtime->stats();
        CHECK(stats.memory.allocated == allocated);
        CHECK(stats.governor.in_flight == 0);
        REQUIRE(w.runtime->synchronize(Deadline::in(std::chrono::seconds(5))).ok());
        CHECK(w.values(view, stream) == wanted);
      }
      CHECK(n > 5);
      CHECK(living == living_before);
    }
  }
}

}  // namespace
}  // namespace heddle::host
