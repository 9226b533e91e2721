// BatchQueue on the simulated device under simulated schedules: each request has one answer, which is its
// own.
#include "api_world_fixture.h"

namespace heddle::simulated {
namespace {

constexpr size_t kProducers = 3, kRequestsEach = 3, kRequestsInAll = kProducers * kRequestsEach;

BatchQueueOptions some_queue(Simulation& simulation) {
  BatchQueueOptions options;
  options.workers = 1 + static_cast<int>(simulation.random(2));
  options.limits.max_batch = 2 + static_cast<int64_t>(simulation.random(5));
  options.limits.max_wait = microseconds(simulation.random(50));
  options.limits.capacity = 2 + simulation.random(16);
  return options;
}

// A request of a queue over "lookup", wrong in one case of four, some late or cancelled; and what became of
// it.
void request_somehow(Simulation& simulation, BatchQueue& queue, Arrivals& told, size_t which, Ends& ends) {
  std::vector<int64_t> rows;
  for (size_t i = 0; i <= simulation.random(3); ++i)
    rows.push_back(static_cast<int64_t>((which + i) % kTableRows));
  const bool wrong = simulation.random(4) == 0;
  if (wrong) rows.back() = kTableRows + 1;
  Timeout timeout;
  if (simulation.random(4) == 0) timeout = microseconds(simulation.random(60));
  BatchFuture future;
  if (const auto refused = error_of([&] { future = queue.submit({indices(rows)}, timeout); })) {
    simulation.expect(*refused == ErrorCode::unavailable, "refused when closed only");
    told.add(simulation, which);
    return ends.add(simulation, *refused);
  }
  future.then([&told, &simulation, which](const BatchFuture&) { told.add(simulation, which); });
  const bool cancelled = simulation.random(4) == 0 && future.cancel();
  std::vector<Tensor> results;
  if (const auto error = error_of([&] { results = future.get(); })) {
    simulation.expect((*error == ErrorCode::cancelled) == cancelled, "cancelled on request, and then always");
    simulation.expect(*error != ErrorCode::deadline || timeout.has_value(), "late only with a deadline");
    simulation.expect(*error != ErrorCode::invalid || wrong, "a bad request fails alone");
    ends.add(simulation, *error);
  } else {
    simulation.expect(!wrong && !cancelled && looked_up(rows, results.at(0)), "its own rows");
    ends.right.add_relaxed(1);
  }
}

TEST_CASE(
    "simulated: each request of a queue over a model has one answer, its own, through a drain and a close") {
  int right = 0, wrong = 0, late = 0, cancelled = 0, closed = 0;
  holds_for_seeds(
      300,
      [&](Simulation& simulation) {
        const ApiWorld world(simulation);
        Arrivals told(kRequestsInAll);
        Ends ends;
        {
          BatchQueue queue(world.lookup, some_queue(simulation));
          const uint64_t end = simulation.random(3);
          run_together(kProducers + 1, [&](int thread) {
            if (thread == kProducers) {
              simulation.pause(microseconds(simulation.random(150)));
              if (end == 0) queue.close();
              if (end == 1) queue.drain();
              return;
            }
            for (size_t i = 0; i < kRequestsEach; ++i)
              request_somehow(simulation, queue, told, static_cast<size_t>(thread) * kRequestsEach + i, ends);
          });
          simulation.expect(queue.metrics().depth == 0, "nothing waits");
        }
        simulation.expect(told.came() == static_cast<int>(kRequestsInAll), "each future was told");
        simulation.expect(ends.all() == static_cast<int>(kRequestsInAll), "each request had one answer");
        right += ends.right.load_relaxed();
        wrong += ends.wrong_data.load_relaxed();
        late += ends.late.load_relaxed();
        cancelled += ends.cancelled.load_relaxed();
        closed += ends.closed.load_relaxed();
        world.expect_no_violation(simulation);
      },
      of_whole_calls());
  if (heddle::test::number_in("HEDDLE_SIM_SEED")) return;
  CHECK(right > 300);
  for (const int each : {wrong, late, cancelled, closed}) CHECK(each > 0);
}

// A function that fails for whole batches; halves are repeated until the bad request stands alone.
TEST_CASE("simulated: a queue over a function repeats halves of a batch until the bad request stands alone") {
  holds_for_seeds(
      200,
      [](Simulation& simulation) {
        const ApiWorld world(simulation);
        BatchQueueOptions options = some_queue(simulation);
        options.retry = true;
        BatchQueue queue(
            [&](std::span<const Tensor> stacked) {
              for (const float value : stacked[0].values<float>()) {
                if (value > 1) throw Error(ErrorCode::invalid, "too large");
              }
              return world.products(stacked);
            },
            options);
        Atomic<int> right{0}, wrong{0};
        run_together(kProducers, [&](int thread) {
          for (size_t i = 0; i < kRequestsEach; ++i) {
            Rows x(1 + static_cast<int64_t>(i % 2), thread + 0.1 * static_cast<double>(i));
            const bool bad = simulation.random(4) == 0;
            if (bad) x.values[3] = 2;
            std::vector<Tensor> results;
            const auto error = error_of([&] { results = queue.submit({tensor_of(x)}).get(); });
            simulation.expect(error.has_value() == bad, "the bad one fails, and no other");
            if (!error) simulation.expect(gives(x, results.at(0)), "its own rows");
            (error ? wrong : right).add_relaxed(1);
          }
        });
        queue.close();
        simulation.expect(right.load_relaxed() + wrong.load_relaxed() == static_cast<int>(kRequestsInAll),
                          "each is answered");
        world.expect_no_violation(simulation);
      },
      of_whole_calls());
}

// Virtual time: the limit is passed without anyone waiting for it.
TEST_CASE("simulated: requests of a worker that hangs are answered, and another worker goes on") {
  int hung = 0;
  holds_for_seeds(
      150,
      [&](Simulation& simulation) {
        const ApiWorld world(simulation);
        BatchQueueOptions options = some_queue(simulation);
        options.hang_after = seconds(2);
        options.replace_hung = true;
        Atomic<int> batches{0};
        Ends ends;
        {
          BatchQueue queue(
              [&](std::span<const Tensor> stacked) {
                if (batches.add_relaxed(1) == 1) simulation.pause(seconds(10));
                return world.products(stacked);
              },
              options);
          run_together(kProducers, [&](int thread) {
            for (size_t i = 0; i < kRequestsEach; ++i) {
              const Rows x(1, thread + 0.1 * static_cast<double>(i));
              std::vector<Tensor> results;
              if (const auto error = error_of([&] { results = queue.submit({tensor_of(x)}).get(); })) {
                ends.add(simulation, *error);
              } else {
                simulation.expect(gives(x, results.at(0)), "its own rows");
                ends.right.add_relaxed(1);
              }
            }
          });
        }
        simulation.expect(ends.all() == static_cast<int>(kRequestsInAll), "each is answered once");
        simulation.expect(ends.all() == ends.right.load_relaxed() + ends.closed.load_relaxed(),
                          "right, or hung");
        hung += ends.closed.load_relaxed();
        world.expect_no_violation(simulation);
      },
      of_whole_calls());
  if (!heddle::test::number_in("HEDDLE_SIM_SEED")) CHECK(hung >= 100);
}

}  // namespace
}  // namespace heddle::simulated
