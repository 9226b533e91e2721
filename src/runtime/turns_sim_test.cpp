// Calls, copies, events and exclusive holds of one runtime under simulated schedules: the order "Turn, then
// Permit" of docs/concurrency.md, on a synchronous and on an asynchronous device.
#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "base/replay_fixture.h"
#include "base/simulation_fixture.h"
#include "base/thread.h"
#include "device/row_faults.h"
#include "runtime/runtime.h"
#include "runtime/test_device_fixture.h"

namespace heddle::runtime {

namespace {

using device::View;
using heddle::test::holds_for_seeds;
using heddle::test::log_for_model;
using std::chrono::microseconds;
using test::Rows;

struct Running {
  explicit Running(Simulation& sim) : sim(sim) {
    static Atomic<int> next{0};
    asynchronous = sim.random(2) == 0;
    device = std::make_shared<test::TestDevice>(
        test::TestOptions{.asynchronous = asynchronous,
                          .runs_together = asynchronous ? 1 + static_cast<int>(sim.random(4)) : 1,
                          .name = text("turns-", next.add_relaxed(1))});
    device->set_kernel("slow", [&sim](const device::Run& run) {
      if (sim.random(3) == 0) sim.pause(microseconds(sim.random(20)));
      return test::copy_through(run);
    });
    device->set_copy([&sim] {
      if (sim.random(3) == 0) sim.pause(microseconds(sim.random(20)));
    });
    runtime = *Runtime::make(device, {});
    model = *runtime->load(test::graph_named("slow"));
    streams.push_back(*runtime->streams().lease());
    streams.push_back(*runtime->streams().lease());
  }

  Stream& some_stream() { return *streams[sim.random(2)]; }
  Deadline some_deadline() {
    return sim.random(4) == 0 ? Deadline::in(microseconds(sim.random(40))) : Deadline::never();
  }
  // ok, or what may come instead of it.
  bool ends_well(const Status& status, Deadline deadline) {
    if (status.ok()) return true;
    if (status.code() == Code::deadline) {
      sim.expect(deadline.expired(), "late only after the deadline");
    } else {
      sim.expect(status.code() == Code::unavailable && closes, "refused only when it is closed");
    }
    return false;
  }

  void call(Rows& rows) {
    const View x = rows.view();
    const Deadline deadline = some_deadline();
    Stream* const stream = sim.random(2) == 0 ? &some_stream() : nullptr;
    const auto outputs = runtime->run(*model, {.inputs = {&x, 1}, .stream = stream, .deadline = deadline});
    if (ends_well(outputs.status(), deadline))
      sim.expect(test::values_of(outputs->front()) == rows.values, "its own values");
  }
  void copy_there_and_back(Rows& rows) {
    const auto mine = runtime->allocate(ir::DType::kF32, {1, 4});
    if (!ends_well(mine.status(), Deadline::never())) return;
    Rows back(1, -1);
    if (!ends_well(runtime->copy(some_stream(), rows.view(), *mine), Deadline::never())) return;
    // Another stream waits for it by itself: the buffer remembers its last write.
    if (!ends_well(runtime->copy(some_stream(), *mine, back.view()), Deadline::never())) return;
    sim.expect(back.values == rows.values, "its own values, from whatever stream");
  }
  // Nobody waits for any of them but the last.
  void chain(Rows& rows) {
    const auto begin = runtime->allocate(ir::DType::kF32, {1, 4});
    if (!ends_well(begin.status(), Deadline::never())) return;
    if (!ends_well(runtime->copy(some_stream(), rows.view(), *begin), Deadline::never())) return;
    View x = *begin;
    for (uint64_t left = sim.random(6); left > 0; --left) {
      const Deadline deadline = some_deadline();
      const auto outputs = runtime->run(
          *model, {.inputs = {&x, 1}, .stream = &some_stream(), .deadline = deadline, .wait = false});
      if (!ends_well(outputs.status(), deadline)) return;
      x = outputs->front();
    }
    Rows back(1, -1);
    if (!ends_well(runtime->copy(some_stream(), x, back.view()), Deadline::never())) return;
    sim.expect(back.values == rows.values, "its own values, through the chain");
  }
  void wait_for_the_other_stream() {
    const Event event = streams[0]->record();
    ends_well(runtime->wait(*streams[1], event), Deadline::never());
  }
  void hold() {
    const Deadline deadline = some_deadline();
    const auto hold = runtime->governor().exclusive(deadline);
    if (!ends_well(hold.status(), deadline)) return;
    sim.expect(holders.add_acq_rel(1) == 0, "one holder");
    const uint64_t before = submitted();
    yield_point("hold");
    sim.expect(submitted() == before, "nobody submits during a hold");
    if (sim.random(2) == 0) {
      const auto mine = runtime->allocate(ir::DType::kF32, {1, 4});
      if (mine.ok()) ends_well(runtime->fill(some_stream(), *mine, 3), Deadline::never());
    }
    holders.sub_acq_rel(1);
  }
  void act(int thread, int round) {
    Rows rows(1, static_cast<float>(100 * thread + 10 * round));
    switch (sim.random(8)) {
      case 0:
        return hold();
      case 1:
        return wait_for_the_other_stream();
      case 2:
      case 3:
        return copy_there_and_back(rows);
      case 4:
      case 5:
        return chain(rows);
      default:
        return call(rows);
    }
  }
  uint64_t submitted() const { return streams[0]->last_submitted() + streams[1]->last_submitted(); }

  Simulation& sim;
  bool asynchronous = false, closes = false;
  Atomic<int> holders{0};
  Ref<test::TestDevice> device;
  Ref<Runtime> runtime;
  Ref<Model> model;
  std::vector<StreamLease> streams;
};

}  // namespace

TEST_CASE("simulated: calls, copies, waits for events and holds all end, with their own values") {
  holds_for_seeds(500, [](Simulation& sim) {
    Running running(sim);
    run_together(4, [&](int thread) {
      for (int round = 0; round < 3; ++round) running.act(thread, round);
    });
    sim.expect(running.runtime->synchronize().ok(), "all is over");
    // The work ends before its permit is back. A hold waits for all permits, so it would wait for ever for
    // one that is lost.
    sim.expect(running.runtime->governor().exclusive(Deadline::never()).ok(), "every permit comes back");
    const auto stats = running.runtime->stats();
    sim.expect(stats.governor.waiting == 0 && stats.governor.in_flight == 0, "every permit is back");
  });
}

TEST_CASE(
    "simulated: a runtime that is closed refuses or ends all that threads do, and nothing stays behind") {
  holds_for_seeds(500, [](Simulation& sim) {
    Ref<test::Counts> counts;
    {
      Running running(sim);
      counts = running.device->shared_counts();
      running.closes = true;
      run_together(4, [&](int thread) {
        if (thread == 3) {
          sim.pause(microseconds(sim.random(40)));
          running.runtime->close();
          return;
        }
        for (int round = 0; round < 2; ++round) running.act(thread, round);
      });
      sim.expect(running.runtime->stats().governor.waiting == 0, "nobody waits");
    }
    sim.expect(counts->nothing_lives(), "memory, queues, slots and programs are gone");
  });
}

TEST_CASE("simulated: a stream's wait for work that was over before its stream failed is ok") {
  holds_for_seeds(2000, [](Simulation& sim) {
    const auto device = std::make_shared<test::TestDevice>(test::TestOptions{.asynchronous = true});
    test::Latch latch;  // the fill ends when the other stream is about to wait for it
    device->set_copy([&] { latch.wait(); });
    device->set_kernel("lost", [](const device::Run&) { return Status::device_lost("gone"); });
    const auto runtime = *Runtime::make(device, {});
    const auto lost = *runtime->load(test::graph_named("lost"));
    const auto one = *runtime->streams().lease(), other = *runtime->streams().lease();
    const View x = *runtime->allocate(ir::DType::kF32, {1, 4});
    sim.expect(runtime->fill(*one, x, 5).ok(), "filled");
    const Event event = one->record();
    static_cast<void>(runtime->run(*lost, {.inputs = {&x, 1}, .stream = &*one, .wait = false}));
    latch.open();
    sim.expect(runtime->wait(*other, event).ok(), "the event was over before the failure");
  });
}

TEST_CASE("replayed: stream: threads that take the Turn of one stream, twice each") {
  log_for_model("stream", "turns", 100, [](Simulation& sim) {
    const Running f(sim);
    Stream& stream = *f.streams.front();
    Atomic<int> owners{0};
    run_together(3, [&](int thread) {
      sim.play(thread);
      for (int i = 0; i < 2; ++i) {
        const auto turn = stream.turn();
        sim.expect(turn.ok() && owners.add_acq_rel(1) == 0, "the Turn, alone");
        owners.sub_acq_rel(1);
      }
    });
  });
}

TEST_CASE("replayed: stream: what a thread holds back is sent, by whoever has the Turn when it is wanted") {
  log_for_model("stream", "held", 200, [](Simulation& sim) {
    const auto device =
        std::make_shared<test::TestDevice>(test::TestOptions{.asynchronous = true, .runs_together = 4});
    const auto allocator = *Allocator::make(device, {});
    Roster roster(device, Clock::real());
    const Ref<Stream> stream = *roster.make(1);
    const auto module = *device->load(test::graph_named("copy"), {}, allocator, {});
    const ir::Extents extents{1, 4};
    const auto tensor = [&] { return View::contiguous(*allocator->allocate(16), ir::DType::kF32, extents); };
    const View x = tensor(), y = tensor();
    device::CommandList list;
    list.run(*module->compile({&extents, 1}, {}), *allocator->allocate(64), {x}, {y},
             std::make_shared<device::RowFaults>(0));
    bool given = false;  // the Turn's owner's
    run_together(3, [&](int thread) {
      sim.play(thread);
      if (thread == 2) return stream->timeline()->want(1);
      for (int i = 0; i < 2; ++i) {
        Turn turn = *stream->turn();
        if (!std::exchange(given, true)) {
          Submission extras;
          extras.joins = true;
          sim.expect(turn.submit(std::move(list), std::move(extras)).ok(), "held back");
        } else if (stream->timeline()->holds_back() && sim.random(2) == 0) {
          sim.expect(turn.send().ok(), "sent");
        }
      }
    });
    sim.play(-1);
    sim.expect(stream->synchronize(Deadline::never()).ok(), "it is over");
  });
}

}  // namespace heddle::runtime
