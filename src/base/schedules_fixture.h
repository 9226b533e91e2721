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
//   Left out   What goes the way of another schedule (base/seen.h), but with weak orders. HEDDLE_SIM_EVERY=1
//              runs every schedule.
//   Shares     HEDDLE_SIM_SHARE=2/8 explores the second of eight parts, so that a machine of many cores takes
//              less time for all of them. With HEDDLE_SIM_EVERY the parts' schedules add up to those of the
//              whole; without it a part does not know what others have seen, so that there are more.
//   Printed    A line of JSON for each exploration, on the standard output: HEDDLE_SIM_RATES=1, or a share.
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

#include "base/seen.h"
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
  // Not twice from one state (base/seen.h), which knows no weak orders.
  bool reduced = !weak_orders;
  SystematicChoices::Share share = {};

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
  uint64_t states = 0, shared = 0;  // where it is reduced
  uint64_t passes = 0;  // over all of it: one more for each time that another shared word was found
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

// Finds most of what is shared, so that there are few passes. What fails here is left to the exploration,
// which counts its preemptions.
inline void draw_shared(const Scenario& scenario, const ScheduledBody& body, SharedWords& shared) {
  constexpr uint64_t kRuns = 60;
  for (uint64_t seed = 1; seed <= kRuns; ++seed) {
    RandomPriorities priorities(seed, 300, 1 + seed % 4, &shared);
    SimulationOptions options;
    options.strategy = &priorities;
    options.steps_max = 20'000;
    if (!simulate(1, [&](Simulation& sim) { body(sim, scenario.threads); }, options).ok()) break;
  }
  shared.grow();
}

// One pass over all schedules with at most `preemptions`; ends at the first that fails, and where a word was
// shared that is not known to be.
inline Explored pass_over(const Scenario& scenario, size_t preemptions, const ScheduledBody& body,
                          Seen& seen) {
  Explored out;
  seen.states.clear();
  SystematicChoices choices({preemptions, scenario.stale}, scenario.reduced ? &seen : nullptr,
                            scenario.share);
  do {
    const SimulationReport report = run_schedule(scenario, choices, body);
    out.schedules += choices.is_of_share() ? 1 : 0;
    out.steps_most = std::max(out.steps_most, report.steps);
    if (!report.ok()) {
      out.failure = report.failure + "HEDDLE_SIM_SCHEDULE='" + scenario.words() + choices.describe() + "'";
    } else if (choices.diverged()) {
      out.failure = "schedule " + choices.describe() + " has other choices when it is repeated";
    } else if (!seen.states.end(report.past) && !seen.shared.has_more()) {
      out.failure = "schedule " + choices.describe() + " goes on otherwise than another one from an equal " +
                    "state: by what the reduction does not see (base/seen.h)";
    }
  } while (!out.failure && !seen.shared.has_more() && choices.advance());
  out.states = seen.states.size();
  out.shared = seen.shared.size();
  return out;
}

// All schedules with at most `preemptions`. `seen` may have the shared words of another bound.
inline Explored explore_bound(const Scenario& scenario, size_t preemptions, const ScheduledBody& body,
                              Seen& seen) {
  constexpr uint64_t kPasses = 100;
  if (scenario.reduced) {  // what a process makes once is made then, else the first run would differ
    SystematicChoices first({0, 0});
    static_cast<void>(run_schedule(scenario, first, body));
  }
  for (uint64_t passes = 1;; ++passes) {
    Explored out = pass_over(scenario, preemptions, body, seen);
    out.passes = passes;
    if (out.failure || !seen.shared.grow()) return out;
    if (scenario.share.of > 1) {  // another share may not have found it, and then has other choices
      out.failure = "this share alone found that a word is shared: explore it as a whole";
      return out;
    }
    if (passes == kPasses) {
      out.failure = "each pass finds another shared word: one that was never constructed has no name";
      return out;
    }
  }
}
inline Explored explore_bound(const Scenario& scenario, size_t preemptions, const ScheduledBody& body) {
  Seen seen;
  return explore_bound(scenario, preemptions, body, seen);
}

// The fewest preemptions first, so that what fails has as few as can be. All but the most are explored as a
// whole, also by a share: so the shares know the same shared words.
inline Explored some_fails(const Scenario& scenario, const ScheduledBody& body) {
  Explored out;
  Seen seen;
  if (scenario.reduced) draw_shared(scenario, body, seen.shared);
  for (size_t bound = 0; bound <= scenario.preemptions && !out.failure; ++bound) {
    Scenario each = scenario;
    if (bound < scenario.preemptions) each.share = {};
    out = explore_bound(each, bound, body, seen);
  }
  return out;
}

// '2/8' is the second of eight.
inline std::optional<SystematicChoices::Share> share_of(const char* words) {
  size_t which = 0, of = 0;
  if (std::sscanf(words, "%zu/%zu", &which, &of) != 2 || which < 1 || which > of) return std::nullopt;
  return SystematicChoices::Share{which - 1, of};
}
inline SystematicChoices::Share asked_share() {
  const char* const words = std::getenv("HEDDLE_SIM_SHARE");
  if (words == nullptr) return {};
  const auto share = share_of(words);
  REQUIRE_MESSAGE(share.has_value(), "HEDDLE_SIM_SHARE='", words, "' is no share such as '2/8'");
  return *share;
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
  if (number_in("HEDDLE_SIM_EVERY").value_or(0) != 0) scenario.reduced = false;
  scenario.share = asked_share();
  const bool whole = scenario.share.of == 1;
  const TimePoint begin = Clock::real().now();
  const Explored all = some_fails(scenario, body);
  const double seconds = std::chrono::duration<double>(Clock::real().now() - begin).count();
  REQUIRE_MESSAGE(!all.failure, *all.failure);
  CHECK((all.schedules > 1 || !whole));
  if (whole && !number_in("HEDDLE_SIM_RATES")) return;
  std::printf(
      "{\"protocol\": \"%s\", \"threads\": %d, \"preemptions\": %zu, \"stale\": %zu, \"share\": "
      "\"%zu/%zu\", \"schedules\": %llu, \"states\": %llu, \"shared\": %llu, \"passes\": %llu, "
      "\"steps_most\": %llu, \"seconds\": %.1f}\n",
      scenario.name, scenario.threads, scenario.preemptions, scenario.stale, scenario.share.which + 1,
      scenario.share.of, static_cast<unsigned long long>(all.schedules),
      static_cast<unsigned long long>(all.states), static_cast<unsigned long long>(all.shared),
      static_cast<unsigned long long>(all.passes), static_cast<unsigned long long>(all.steps_most), seconds);
  std::fflush(stdout);
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
