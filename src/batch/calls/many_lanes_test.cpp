// A coalescer over as many lanes as large machines have processors.
#include "batch/calls/coalescer_fixture.h"

namespace heddle::batch {

namespace {

constexpr int kManyLanes = 128, kCrowd = kManyLanes + 2;

// y = 2 * x, on a device with 128 lanes; runs wait until they are let go.
struct ManyLanes {
  ManyLanes() {
    device->set_kernel("doubled", [this](const device::Run& run) {
      latch.wait();
      const View& x = run.inputs[0];
      for (int64_t i = 0; i < x.extents[0]; ++i) {
        for (int64_t j = 0; j < x.extents[1]; ++j)
          Fixture::at(run.outputs[0], i, j) = 2 * Fixture::at(x, i, j);
      }
      return Status();
    });
    runtime = *runtime::Runtime::make(device, {});
    model = *runtime->load(runtime::test::graph_named("doubled"));
    CoalescerOptions options = with(kManyLanes);
    options.chooses_lanes = false;  // all of them at once
    coalescer = std::make_shared<Coalescer>(
        runtime, model, *RowLayout::make(model->inputs(), model->outputs(), {}, false), options);
  }
  ~ManyLanes() { coalescer->close(); }

  bool call_is_right(int64_t rows, float first) {
    Rows x(rows, first);
    const View view = x.view();
    const auto y = coalescer->call({&view, 1}, Deadline::never(), {});
    for (float& value : x.values) value *= 2;
    return y.ok() && y->size() == 1 && runtime::test::values_of(y->front()) == x.values;
  }

  Latch latch;
  Ref<runtime::test::TestDevice> device = std::make_shared<runtime::test::TestDevice>(
      runtime::test::TestOptions{.lanes = kManyLanes, .name = "coalesced-many"});
  Ref<runtime::Runtime> runtime;
  Ref<runtime::Model> model;
  Ref<Coalescer> coalescer;
};

}  // namespace

TEST_CASE("130 callers of 128 lanes: 128 run at once, two join the next batch, every answer is right once") {
  constexpr int kTimes = 20;
  ManyLanes f;
  Atomic<int> right{0};
  std::vector<Thread> callers;
  for (int who = 0; who < kCrowd; ++who) {
    callers.emplace_back("caller", [&, who] {
      for (int i = 0; i < kTimes; ++i)
        right.add_relaxed(f.call_is_right(1 + who % 3, static_cast<float>(1000 * who + i)) ? 1 : 0);
    });
  }
  wait_until([&] { return f.latch.arrived() == kManyLanes && f.coalescer->stats().parked == 2; });
  CHECK(f.runtime->governor().stats().in_flight == kManyLanes);
  f.latch.open();
  callers.clear();
  CHECK(f.device->counts().most_running.load_relaxed() == kManyLanes);
  CHECK(right.load_relaxed() == kCrowd * kTimes);
  CHECK(f.coalescer->stats().calls == uint64_t{kCrowd * kTimes});
  CHECK(f.coalescer->stats().parked == 0);
  CHECK(f.runtime->governor().stats().in_flight == 0);
}

}  // namespace heddle::batch
