// Runs whose operands all lie in a slot, as batches have them: their commands are made once.
#include <doctest/doctest.h>

#include <cstring>
#include <memory>

#include "runtime/runtime.h"
#include "runtime/test_device_fixture.h"

namespace heddle::runtime {
namespace {

using namespace std::chrono_literals;
using device::View;
using test::Rows;

// A model y = 2 * x, whose runs begin when the latch opens.
struct SlotCalls {
  explicit SlotCalls(bool unified) {
    static Atomic<int> next{0};
    device =
        std::make_shared<test::TestDevice>(test::TestOptions{.asynchronous = true,
                                                             .binds_caller_memory = false,
                                                             .unified = unified,
                                                             .name = text("slots", next.add_relaxed(1))});
    device->set_kernel("twice", [this](const device::Run& run) {
      latch.wait();
      seen = &run;
      const auto* x = reinterpret_cast<const float*>(test::at(run.inputs[0]));
      auto* y = reinterpret_cast<float*>(test::at(run.outputs[0]));
      for (int64_t i = 0; i < run.outputs[0].extents.elements(); ++i) y[i] = 2 * x[i];
      return Status();
    });
    device->set_submit([this] { return refuses ? Status::exhausted("no room") : Status(); });
    runtime = *Runtime::make(device);
    model = *runtime->load(test::graph_named("twice"));
    slot = runtime->slots().take();
  }
  Result<InFlight> start(Rows& rows) {
    const View from = rows.view();
    if (Status room = slot->reserve_input(0, from.bytes()); !room.ok()) return room;
    const View x = View::contiguous(slot->input(0).staging, from.dtype, from.extents);
    std::memcpy(x.host(), from.host(), from.bytes());
    return runtime->start(*model, {.inputs = {&x, 1},
                                   .row_faults = std::make_shared<device::RowFaults>(rows.extents[0]),
                                   .slot = slot,
                                   .results_in_slot = true});
  }
  bool is_right(Rows& rows) {
    Result<InFlight> started = start(rows);
    if (!started.ok()) return false;
    const Result<std::vector<View>> made = runtime->finish(*started, Deadline::never());
    std::vector<float> twice = rows.values;
    for (float& value : twice) value *= 2;
    return made.ok() && test::values_of(made->front()) == twice;
  }

  test::Latch latch;
  bool refuses = false;
  const device::Run* seen = nullptr;
  Ref<test::TestDevice> device;
  Ref<Runtime> runtime;
  Ref<Model> model;
  Ref<Slot> slot;
};

template <class Body>
void with_one_memory_and_two(Body&& body) {
  for (const bool unified : {false, true}) {
    CAPTURE(unified);
    SlotCalls s(unified);
    body(s);
  }
}

TEST_CASE("a run that comes again in its slot has its commands as they are, and anew after another one") {
  with_one_memory_and_two([](SlotCalls& s) {
    s.latch.open();
    Rows few(2, 1), same(2, 50), many(40, 7);
    REQUIRE(s.is_right(few));
    const device::Run* const made = s.seen;
    CHECK(s.is_right(same));
    CHECK(s.seen == made);
    CHECK(s.is_right(many));  // its ports grow
    CHECK(s.is_right(same));
    CHECK(s.is_right(many));
  });
}

TEST_CASE("a slot is in use until its run is over, and keeps no program then") {
  with_one_memory_and_two([](SlotCalls& s) {
    Rows rows(2, 1);
    Result<InFlight> started = s.start(rows);
    REQUIRE(started.ok());
    CHECK_FALSE(s.slot->is_quiet());
    CHECK(s.runtime->finish(*started, Deadline::in(1ms)).status().code() == Code::deadline);
    CHECK_FALSE(s.slot->is_quiet());
    s.latch.open();
    CHECK(s.runtime->finish(*started, Deadline::never()).ok());
    CHECK(s.slot->is_quiet());
    s.runtime->executables().forget(s.model->id());
    CHECK(s.device->counts().programs.load_acquire() == 0);
    CHECK(s.is_right(rows));  // compiled anew: what was made for the last program is of no use
  });
}

TEST_CASE("a slot whose submission is refused can be used again, when what was waited for is over") {
  with_one_memory_and_two([](SlotCalls& s) {
    s.latch.open();
    Rows rows(2, 1);
    CHECK(s.is_right(rows));
    s.refuses = true;
    CHECK(s.start(rows).status().code() == Code::exhausted);
    test::wait_until([&] { return s.slot->is_quiet(); });
    s.refuses = false;
    CHECK(s.is_right(rows));
  });
}

// Nothing else than the submission keeps the slot.
TEST_CASE("memory of a slot that was let go of is in use until its run is over") {
  with_one_memory_and_two([](SlotCalls& s) {
    Rows rows(2, 1);
    {
      Result<InFlight> started = s.start(rows);
      REQUIRE(started.ok());
      CHECK(s.runtime->finish(*started, Deadline::in(1ms)).status().code() == Code::deadline);
    }
    s.slot.reset();
    const auto held = [&] {
      s.runtime->slots().drop_idle();
      return s.runtime->stats().slot_bytes;
    };
    CHECK(held() > 0);
    s.latch.open();
    REQUIRE(s.runtime->synchronize().ok());
    test::wait_until([&] { return held() == 0; });
  });
}

}  // namespace
}  // namespace heddle::runtime
