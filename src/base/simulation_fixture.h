// simulation_fixture.h: many seeds of one simulation, for tests.
//
//   What       holds_for_seeds(n, body) fails the test with the report of the first seed that fails, or that
//              does not repeat itself. some_seed_fails(n, body) is for bodies that are wrong on purpose: it
//              gives the report of the first seed that fails.
//   Replay     HEDDLE_SIM_SEED=17 runs that seed alone. HEDDLE_SIM_TIMES=10 runs ten times as many seeds,
//              HEDDLE_SIM_FIRST=5000 begins with another one than 1. HEDDLE_SIM_RATES=1 prints how many
//              seeds there were, and how many simulations a second.
//   Threads    The test's, outside a simulation. The body uses Simulation::expect(), not doctest: a failure
//              has to end the simulation, and its report has to name the seed.
#pragma once

#if defined(HEDDLE_SIM)

#include <doctest/doctest.h>

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>

#include "base/simulation.h"

namespace heddle::test {

using SimulatedBody = std::function<void(Simulation&)>;

// Time does not jump while others could run: after a pause they have done what they do without one.
inline SimulationOptions without_stalls() {
  SimulationOptions options;
  options.stall_max = Duration(0);
  return options;
}

// Every so many seeds one is run twice: a body whose decisions are not the seed's cannot be replayed.
inline constexpr uint64_t kRepeatEvery = 50;

inline void check_seed(uint64_t seed, const SimulatedBody& body, const SimulationOptions& options,
                       SimulationReport& sum) {
  const SimulationReport report = simulate(seed, body, options);
  REQUIRE_MESSAGE(report.ok(), report.failure);
  sum.steps += report.steps;
  sum.hand_overs += report.hand_overs;
  if (seed % kRepeatEvery != 0) return;
  const SimulationReport again = simulate(seed, body, options);
  REQUIRE_MESSAGE(again.ok(), again.failure);
  REQUIRE_MESSAGE(again.fingerprint == report.fingerprint, "seed ", seed, " decides otherwise when repeated");
  CHECK(again.steps == report.steps);
}

inline std::optional<uint64_t> number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  return std::strtoull(text, nullptr, 10);
}

// Those that the variables above ask for, where a test has `usual` of them by itself.
struct Seeds {
  uint64_t first, last;
};
inline Seeds asked_seeds(uint64_t usual) {
  if (const auto only = number_in("HEDDLE_SIM_SEED")) return {*only, *only};
  const uint64_t first = number_in("HEDDLE_SIM_FIRST").value_or(1);
  return {first, first + usual * number_in("HEDDLE_SIM_TIMES").value_or(1) - 1};
}

inline void holds_for_seeds(uint64_t usual, const SimulatedBody& body,
                            const SimulationOptions& options = {}) {
  SimulationReport sum;
  const auto [first, last] = asked_seeds(usual);
  const TimePoint begin = Clock::real().now();
  for (uint64_t seed = first; seed <= last; ++seed) check_seed(seed, body, options, sum);
  if (first == last) return;
  const uint64_t seeds = last - first + 1;
  const double seconds = std::chrono::duration<double>(Clock::real().now() - begin).count();
  CHECK(sum.hand_overs > seeds);
  if (number_in("HEDDLE_SIM_RATES")) {
    const auto rate = static_cast<uint64_t>(static_cast<double>(seeds) / seconds);
    MESSAGE(seeds, " seeds: ", rate, " simulations a second of ", (sum.steps / seeds), " steps and ",
            (sum.hand_overs / seeds), " hand-overs each");
  }
}

inline std::optional<SimulationReport> some_seed_fails(uint64_t seeds, const SimulatedBody& body,
                                                       const SimulationOptions& options = {}) {
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    SimulationReport report = simulate(seed, body, options);
    if (!report.ok()) return report;
  }
  return std::nullopt;
}

}  // namespace heddle::test

#endif
