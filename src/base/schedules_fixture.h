// schedules_fixture.h: every schedule of a small scenario up to a bound, for tests.
//
//   What       explore({name, threads, preemptions}, body) runs `body` under every schedule of its threads
//              with at most so many preemptions (base/strategy.h), the fewest first, and fails the test with
//              the first one that fails. The body makes its things, calls at_once() once, and checks.
//              some_fails() is for bodies that are wrong on purpose.
//   Random     draw({name, threads}, runs, depth, body) draws schedules by random priorities (PCT), for more
//              threads than can be explored. Prints how probable a bug of that depth is to be met, at least.
//   Replay     A failure names its schedule. HEDDLE_SIM_SCHEDULE='once_map 3 3.0:14+1,' runs that one
//              alone.
//   Printed    A line of JSON for each exploration, on the standard output: HEDDLE_SIM_RATES=1.
//   Bounds     HEDDLE_SIM_BOUND=3 in place of a test's own bound where that is lower, up to the most that the
//              scenario allows (tools/check.py, stage sim_long).
//   Threads    The test's, outside a simulation.
#pragma once

#if defined(HEDDLE_SIM)

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/simulation_fixture.h"
#include "base/strategy.h"
#include "base/thread.h"

namespace heddle::test {

struct Scenario {
  const char* name;  // of the protocol
  int threads = 2;
  size_t preemptions = 3;
  size_t most = 3;  // preemptions, where HEDDLE_SIM_BOUND asks for more
  bool weak_orders = false;
  size_t stale = 0;  // with weak orders: loads of a schedule that do not find the newest value

  std::string words() const { return text(name, " ", threads, " "); }
};

using ScheduledBody = std::function<void(Simulation&, int threads)>;

// body(0) ... body(threads - 1), each on a thread of its own. Only in here is there a choice.
inline void at_once(Simulation& sim, int threads, const std::function<void(int)>& body) {
  std::vector<Thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back(text("thread-", i), [&sim, &body, i] {
      sim.line_up();
      body(i);
      sim.step_out();
    });
  }
  sim.let_go(threads);
}

struct Explored {
  uint64_t schedules = 0, steps_most = 0;
  std::optional<std::string> failure;
};

inline SimulationReport run_schedule(const Scenario& scenario, SystematicChoices& choices,
                                     const ScheduledBody& body) {
  SimulationOptions options;
  options.strategy = &choices;
  options.weak_orders = scenario.weak_orders;
  options.steps_max = 20'000;
  choices.begin();
  return simulate(1, [&](Simulation& sim) { body(sim, scenario.threads); }, options);
}

// All schedules with at most `preemptions`; ends at the first that fails.
inline Explored explore_bound(const Scenario& scenario, size_t preemptions, const ScheduledBody& body) {
  Explored out;
  SystematicChoices choices({preemptions, scenario.stale});
  do {
    const SimulationReport report = run_schedule(scenario, choices, body);
    ++out.schedules;
    out.steps_most = std::max(out.steps_most, report.steps);
    if (!report.ok()) {
      out.failure = report.failure + "HEDDLE_SIM_SCHEDULE='" + scenario.words() + choices.describe() + "'";
    } else if (choices.diverged()) {
      out.failure = "schedule " + choices.describe() + " has other choices when it is repeated";
    }
  } while (!out.failure && choices.advance());
  return out;
}

// The fewest preemptions first, so that what fails has as few as can be.
inline Explored some_fails(const Scenario& scenario, const ScheduledBody& body) {
  Explored out;
  for (size_t bound = 0; bound <= scenario.preemptions && !out.failure; ++bound)
    out = explore_bound(scenario, bound, body);
  return out;
}

inline void explore(Scenario scenario, const ScheduledBody& body) {
  const char* const only = std::getenv("HEDDLE_SIM_SCHEDULE");
  if (only != nullptr) {
    const std::string words(only);
    if (words.find(scenario.words()) != 0) return;
    SystematicChoices choices = SystematicChoices::replay(words.substr(scenario.words().size()));
    const SimulationReport report = run_schedule(scenario, choices, body);
    REQUIRE_MESSAGE(report.ok(), report.failure);
    return;
  }
  const size_t asked = std::min<size_t>(scenario.most, number_in("HEDDLE_SIM_BOUND").value_or(0));
  scenario.preemptions = std::max(scenario.preemptions, asked);
  const TimePoint begin = Clock::real().now();
  const Explored all = some_fails(scenario, body);
  const double seconds = std::chrono::duration<double>(Clock::real().now() - begin).count();
  REQUIRE_MESSAGE(!all.failure, *all.failure);
  CHECK(all.schedules > 1);
  if (number_in("HEDDLE_SIM_RATES")) {
    std::printf(
        "{\"protocol\": \"%s\", \"threads\": %d, \"preemptions\": %zu, \"stale\": %zu, \"schedules\": %llu, "
        "\"steps_most\": %llu, \"seconds\": %.1f}\n",
        scenario.name, scenario.threads, scenario.preemptions, scenario.stale,
        static_cast<unsigned long long>(all.schedules), static_cast<unsigned long long>(all.steps_most),
        seconds);
    std::fflush(stdout);
  }
}

struct Drawn {
  uint64_t runs = 0;
  size_t steps = 0;        // k, of the longest run
  double probability = 0;  // that one run meets a bug of that depth, at least
};

// HEDDLE_SIM_SEED=17 draws that one alone.
inline Drawn draw(const Scenario& scenario, uint64_t runs, size_t depth, const ScheduledBody& body) {
  Drawn out;
  const auto run = [&](uint64_t seed, size_t steps, size_t changes) {
    RandomPriorities priorities(seed, steps, changes);
    SimulationOptions options;
    options.strategy = &priorities;
    const SimulationReport report =
        simulate(seed, [&](Simulation& sim) { body(sim, scenario.threads); }, options);
    REQUIRE_MESSAGE(report.ok(), report.failure);
    out.steps = std::max(out.steps, priorities.steps());
    ++out.runs;
  };
  for (uint64_t seed = 1; seed <= 3; ++seed) run(seed, 1, 1);  // how many steps there are
  const size_t steps = out.steps;
  if (const auto only = number_in("HEDDLE_SIM_SEED")) {
    run(*only, steps, depth);
    return out;
  }
  for (uint64_t seed = 1; seed <= runs * number_in("HEDDLE_SIM_TIMES").value_or(1); ++seed)
    run(seed, steps, depth);
  out.probability =
      std::pow(static_cast<double>(out.steps), 1.0 - static_cast<double>(depth)) / scenario.threads;
  if (number_in("HEDDLE_SIM_RATES")) {
    const double met = 1 - std::pow(1 - out.probability, static_cast<double>(out.runs));
    std::printf(
        "{\"protocol\": \"%s\", \"threads\": %d, \"steps\": %zu, \"depth\": %zu, \"runs\": %llu, "
        "\"probability_of_one\": %.3g, \"of_all\": %.3g}\n",
        scenario.name, scenario.threads, out.steps, depth, static_cast<unsigned long long>(out.runs),
        out.probability, met);
  }
  return out;
}

}  // namespace heddle::test

#endif
