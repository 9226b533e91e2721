// Calls and submissions of models, which are coalesced, on the simulated device under simulated schedules:
// each has one answer, which is its own.
#include <stop_token>

#include "api_world_fixture.h"

namespace heddle::simulated {
namespace {

// In time, late or cancelled, as the seed chooses to make it.
void call_somehow(Simulation& simulation, const ApiWorld& world, const std::stop_token& cancel, double first,
                  Ends& ends) {
  const Rows x(1 + static_cast<int64_t>(simulation.random(3)), first);
  CallOptions options;
  const uint64_t kind = simulation.random(4);
  if (kind == 0) options.timeout = microseconds(simulation.random(80));
  if (kind == 1) options.cancel = cancel;
  std::vector<Tensor> results;
  if (const auto error = error_of([&] { results = world.products({tensor_of(x)}, options); })) {
    simulation.expect(*error != ErrorCode::deadline || kind == 0, "late only with a deadline");
    simulation.expect(*error != ErrorCode::cancelled || kind == 1, "cancelled only on request");
    ends.add(simulation, *error);
  } else {
    simulation.expect(gives(x, results.at(0)), "a call gets its own rows");
    ends.right.add_relaxed(1);
  }
}

TEST_CASE("simulated: callers that join batches, leave at deadlines or are cancelled have one answer each") {
  constexpr int kCallers = 4, kRounds = 3;
  int late = 0, cancelled = 0;
  uint64_t batches = 0, calls = 0;
  holds_for_seeds(
      300,
      [&](Simulation& simulation) {
        ModelOptions options;
        options.max_batch = 8;
        const ApiWorld world(simulation, options);
        Ends ends;
        std::stop_source stop;
        run_together(kCallers + 1, [&](int caller) {
          if (caller == kCallers) {
            simulation.pause(microseconds(simulation.random(200)));
            stop.request_stop();
            return;
          }
          for (int round = 0; round < kRounds; ++round)
            call_somehow(simulation, world, stop.get_token(), caller + 0.1 * round, ends);
        });
        const CoalescingStats stats = *world.products.coalescing_stats();
        simulation.expect(ends.all() == kCallers * kRounds, "each call had one answer");
        simulation.expect(ends.closed.load_relaxed() == 0 && ends.wrong_data.load_relaxed() == 0,
                          "of these kinds");
        simulation.expect(stats.waiting == 0, "nobody waits");
        simulation.expect(stats.calls >= static_cast<uint64_t>(ends.right.load_relaxed()), "each is counted");
        late += ends.late.load_relaxed();
        cancelled += ends.cancelled.load_relaxed();
        batches += stats.batches;
        calls += stats.calls;
        world.expect_no_violation(simulation);
      },
      of_whole_calls());
  if (heddle::test::number_in("HEDDLE_SIM_SEED")) return;
  CHECK(late > 0);
  CHECK(cancelled > 0);
  CHECK(batches < calls);  // some were joined
}

TEST_CASE(
    "simulated: submissions are answered once each, also those that are late, cancelled or overtaken by a "
    "close") {
  constexpr size_t kSubmitters = 3, kEach = 4, kAll = kSubmitters * kEach;
  int closed = 0, right = 0;
  holds_for_seeds(
      300,
      [&](Simulation& simulation) {
        const ApiWorld world(simulation);
        Ends ends;
        Arrivals answers(kAll);
        Atomic<int> taken{0};
        std::stop_source stop;
        const bool closes = simulation.random(3) == 0;
        run_together(kSubmitters + 1, [&](int thread) {
          if (thread == kSubmitters) {
            simulation.pause(microseconds(simulation.random(150)));
            stop.request_stop();
            if (closes) world.products.close();
            return;
          }
          for (size_t i = 0; i < kEach; ++i) {
            const size_t which = static_cast<size_t>(thread) * kEach + i;
            const Rows x(1 + static_cast<int64_t>(which % 2), static_cast<double>(which));
            CallOptions options;
            const uint64_t kind = simulation.random(4);
            if (kind == 0) options.timeout = microseconds(simulation.random(80));
            if (kind == 1) options.cancel = stop.get_token();
            const auto then = [&, x, which](std::vector<Tensor> results, const std::exception_ptr& error) {
              if (const auto code = error_in(error)) {
                ends.add(simulation, *code);
              } else {
                simulation.expect(gives(x, results.at(0)), "its own rows");
                ends.right.add_relaxed(1);
              }
              answers.add(simulation, which);
            };
            const Tensor in[] = {tensor_of(x)};
            const auto refused = error_of([&] { world.products.submit(in, options, then); });
            simulation.expect(!refused || *refused == ErrorCode::unavailable, "refused when closed only");
            if (!refused) taken.add_relaxed(1);
          }
        });
        answers.wait(taken.load_relaxed());
        world.products.close();
        simulation.expect(answers.came() == taken.load_relaxed(), "no answer comes after the close");
        simulation.expect(ends.all() == taken.load_relaxed(), "each is answered once");
        simulation.expect(closes || taken.load_relaxed() == static_cast<int>(kAll), "each is taken");
        closed += static_cast<int>(kAll) - taken.load_relaxed();
        right += ends.right.load_relaxed();
        world.expect_no_violation(simulation);
      },
      of_whole_calls());
  if (heddle::test::number_in("HEDDLE_SIM_SEED")) return;
  CHECK(closed > 0);
  CHECK(right > 1000);
}

// A request in three is wrong, which only its data shows.
TEST_CASE("simulated: of requests that run together, beside callers, a bad one fails alone") {
  constexpr int kThreads = 3;
  holds_for_seeds(
      200,
      [](Simulation& simulation) {
        const ApiWorld world(simulation);
        Atomic<int> right{0}, wrong{0}, formed{0};
        run_together(kThreads, [&](int thread) {
          if (thread == 0) {
            for (int i = 0; i < 3; ++i) {
              const std::vector<int64_t> rows = {i, 4 - i};
              if (looked_up(rows, world.lookup({indices(rows)}).at(0))) right.add_relaxed(1);
            }
            return;
          }
          const std::vector<std::vector<int64_t>> rows = {{thread}, {kTableRows + thread}, {1, 2}};
          std::vector<std::vector<Tensor>> requests;
          for (const auto& each : rows) requests.push_back({indices(each)});
          const auto outcomes = world.lookup.run_together(requests, [&] { formed.add_relaxed(1); });
          simulation.expect(outcomes.size() == requests.size(), "each has an outcome");
          for (size_t i = 0; i < outcomes.size(); ++i) {
            const auto error = error_in(outcomes[i].error);
            simulation.expect(error.has_value() == (i == 1), "the bad one alone has an error");
            if (error) {
              simulation.expect(*error == ErrorCode::invalid, "it is told what is wrong");
              wrong.add_relaxed(1);
            } else if (looked_up(rows[i], outcomes[i].results.at(0))) {
              right.add_relaxed(1);
            }
          }
        });
        simulation.expect(right.load_relaxed() == 3 + 2 * (kThreads - 1), "the others have their rows");
        simulation.expect(wrong.load_relaxed() == kThreads - 1, "each bad one is found");
        simulation.expect(formed.load_relaxed() == kThreads - 1, "each batch was formed once");
        world.expect_no_violation(simulation);
      },
      of_whole_calls());
}

}  // namespace
}  // namespace heddle::simulated
