// The coalescer's hand-over and the request queue under all schedules of two and three threads, up to a
// number of preemptions.
#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "base/schedules_fixture.h"
#include "batch/calls/coalescer_fixture.h"
#include "batch/requests/request_queue.h"

namespace heddle::batch {
namespace {

using heddle::test::at_once;
using heddle::test::explore;

TEST_CASE("schedules: callers that meet on one lane each get their own rows, and none is forgotten") {
  for (const int count : {2, 3}) {
    // Each of its schedules shares other words: finding them takes longer than what that saves.
    heddle::test::Scenario scenario{"coalescer", count, 1, 2};
    scenario.reduced = false;
    explore(scenario, [](Simulation& sim, int threads) {
      Fixture fixture(with(1, 2));
      sim.expect(fixture.compile(2).ok(), "the programs are made");
      Atomic<int> right{0};
      at_once(sim, threads, [&](int caller) {
        Rows rows(1, static_cast<float>(10 * caller));
        sim.expect(fixture.right(rows, fixture.call(rows)), "its own rows");
        right.add_relaxed(1);
      });
      sim.expect(right.newest() == threads, "each had one answer");
      sim.expect(fixture.coalescer->stats().parked == 0 && !fixture.coalescer->anyone_waits(),
                 "nobody waits");
    });
  }
}

// Without the door: what hands seats, leads and leaves alone.
TEST_CASE("schedules: a seat is claimed, led, or left at a deadline, and each caller has one answer") {
  for (const int count : {2, 3}) {
    explore({"coalescer_seats", count, 1, count == 2 ? 2u : 1u}, [](Simulation& sim, int threads) {
      Fixture fixture(with(1, 2));
      sim.expect(fixture.compile(2).ok(), "the programs are made");
      Atomic<int> answers{0};
      at_once(sim, threads, [&](int caller) {
        Rows rows(1, static_cast<float>(10 * caller));
        const View view = rows.view();
        const Deadline deadline =
            caller == 0 ? Deadline::in(std::chrono::milliseconds(1)) : Deadline::never();
        const auto result = fixture.coalescer->join({&view, 1}, deadline, {}, nullptr);
        sim.expect(fixture.right(rows, result) || (caller == 0 && result.status().code() == Code::deadline),
                   "its own rows, or late");
        answers.add_relaxed(1);
      });
      sim.expect(answers.newest() == threads, "each had one answer");
      sim.expect(fixture.coalescer->stats().parked == 0 && !fixture.coalescer->anyone_waits(),
                 "nobody waits");
    });
  }
}

// Callers of one lane, of whom the first may be late. What a run does is left out: one lane's runs follow
// each other, and the runtime's parts have schedules of their own.
void hand_over(Simulation& sim, int threads, const CoalescerOptions& options) {
  const auto fixture = sim.leave_out([&] {
    auto made = std::make_unique<Fixture>(options);
    Rows rows(2, 1);
    sim.expect(made->compile(2).ok() && made->right(rows, made->call(rows)), "the programs are made");
    return made;
  });
  const runtime::Model& model = *fixture->model;
  fixture->coalescer =
      std::make_shared<Coalescer>(fixture->runtime, fixture->model,
                                  *RowLayout::make(model.inputs(), model.outputs(), {}, false), options);
  std::vector<int> answers(static_cast<size_t>(threads));
  at_once(sim, threads, [&](int caller) {
    Rows rows(1, static_cast<float>(10 * caller));
    const View view = rows.view();
    const Deadline deadline = caller == 0 ? Deadline::in(std::chrono::milliseconds(1)) : Deadline::never();
    const auto result = fixture->coalescer->join({&view, 1}, deadline, {}, nullptr);
    sim.expect(fixture->right(rows, result) || (caller == 0 && result.status().code() == Code::deadline),
               "its own rows, or late");
    ++answers[static_cast<size_t>(caller)];
  });
  for (const int each : answers) sim.expect(each == 1, "each had one answer");
  sim.expect(fixture->coalescer->stats().parked == 0 && !fixture->coalescer->anyone_waits(), "nobody waits");
}

// The least that hands a batch over: one on show, programs and memory there, the costs known.
TEST_CASE("schedules: of callers of a lane one leads each batch, one may be late, and none is forgotten") {
  for (const int count : {2, 3}) {
    explore({"coalescer_hand_over", count, count == 2 ? 3u : 2u}, [](Simulation& sim, int threads) {
      CoalescerOptions options = with(1, 2);
      options.cost = [](int64_t rows) { return std::chrono::microseconds(20 + rows); };
      options.door = options.spare = false;
      hand_over(sim, threads, options);
    });
  }
}

// With a spare batch, a door that they shut, and costs that are measured.
TEST_CASE("schedules: callers of a lane with a spare batch each have one answer, and none is forgotten") {
  for (const int count : {2, 3}) {
    explore({"coalescer_spare", count, count == 2 ? 3u : 1u, count == 2 ? 3u : 2u},
            [](Simulation& sim, int threads) { hand_over(sim, threads, with(1, 2)); });
  }
}

TEST_CASE("schedules: each request comes back once, from a batch or from close()") {
  for (const int count : {2, 3}) {
    explore({"request_queue", count, count == 2 ? 3u : 2u}, [](Simulation& sim, int threads) {
      QueueOptions options;
      options.limits.max_rows = 2;
      options.limits.max_wait = Duration::max();
      options.lanes = threads - 1;
      options.capacity = 2;
      RequestQueue queue(options);
      char handles[2] = {};
      Atomic<int> answers[2];
      const auto add = [&](const std::vector<void*>& payloads) {
        for (void* const payload : payloads) answers[static_cast<char*>(payload) - handles].add_relaxed(1);
      };
      at_once(sim, threads, [&](int thread) {
        if (thread == 0) {
          for (char& handle : handles) {
            Request request;
            request.payload = &handle;
            sim.expect(queue.submit(request, Deadline::never()).ok(), "there is room");
          }
          const Owed owed = queue.close();
          return add(owed.payloads());
        }
        for (;;) {
          const Result<Work> work = queue.take(Deadline::never());
          if (!work.ok()) return sim.expect(work.status().code() == Code::unavailable, "closed");
          queue.formed(work->ticket);
          if (const Owed owed = queue.ran(work->ticket)) add(work->batch);
          queue.finish(work->ticket, false);
        }
      });
      for (const auto& each : answers) sim.expect(each.newest() == 1, "each request comes back once");
    });
  }
}

TEST_CASE("schedules: of many threads, drawn: callers on two lanes each get their own rows") {
  heddle::test::draw({"coalescer", 5}, 500, 3, [](Simulation& sim, int threads) {
    Fixture fixture(with(2, 4));
    sim.expect(fixture.compile(4).ok(), "the programs are made");
    Atomic<int> right{0};
    at_once(sim, threads, [&](int caller) {
      Rows rows(1, static_cast<float>(10 * caller));
      sim.expect(fixture.right(rows, fixture.call(rows)), "its own rows");
      right.add_relaxed(1);
    });
    sim.expect(right.newest() == threads && !fixture.coalescer->anyone_waits(), "nobody waits");
  });
}

TEST_CASE("schedules: who waits for room gets it, and a deadline takes nothing with it") {
  for (const int count : {2, 3}) {
    explore({"request_queue_room", count, count == 2 ? 3u : 2u}, [](Simulation& sim, int threads) {
      QueueOptions options;
      options.limits.max_rows = 1;
      options.capacity = 1;
      RequestQueue queue(options);
      char handles[3] = {};
      Atomic<int> answers[3];
      const auto add = [&](void* payload) { answers[static_cast<char*>(payload) - handles].add_relaxed(1); };
      const auto submit = [&](char& handle, Deadline room) {
        Request request;
        request.payload = &handle;
        const Result<RequestId> id = queue.submit(request, room);
        if (!id.ok()) add(&handle);
      };
      submit(handles[0], Deadline::never());
      at_once(sim, threads, [&](int thread) {
        if (thread == 1) return submit(handles[1], Deadline::never());
        if (thread == 2) return submit(handles[2], Deadline::in(std::chrono::milliseconds(1)));
        for (int left = threads - 1; left > 0; --left) {
          const Result<Work> work = queue.take(Deadline::never());
          sim.expect(work.ok(), "there is something to take");
          for (void* const payload : work->batch) add(payload);
          queue.finish(work->ticket, false);
        }
      });
      const Owed owed = queue.close();
      for (void* const payload : owed.payloads()) add(payload);
      for (int i = 0; i < threads; ++i) sim.expect(answers[i].newest() == 1, "each request comes back once");
    });
  }
}

}  // namespace
}  // namespace heddle::batch
