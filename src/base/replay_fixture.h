// replay_fixture.h: logs of what threads did, for comparison with the model of their protocol.
//
//   What       log_for_model("stream_pool", "wait", seeds, body) simulates the body for each seed. Its
//              threads play() the processes of models/stream_pool.pml, in the bound of that model's line
//              "Replay wait". What they say by seam::did() is written to
//              HEDDLE_STEP_LOGS/stream_pool.wait.log, where that is set: tools/replay_models.py has spin look
//              for an execution of the model with these steps.
//   Format     "seed 17", then a line for each step: process, name, value.
//   Threads    The test's, outside a simulation. The body uses Simulation::expect().
#pragma once

#if defined(HEDDLE_SIM)

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "base/simulation_fixture.h"

namespace heddle::test {

inline std::string words_of(const std::vector<ToldStep>& told) {
  std::string out;
  for (const ToldStep& step : told) {
    out += std::to_string(step.role) + ' ' + step.name + ' ' + std::to_string(step.value) + '\n';
  }
  return out;
}

inline void log_for_model(const std::string& model, const std::string& run, uint64_t seeds,
                          const SimulatedBody& body) {
  SimulationOptions options;
  options.listen = true;
  std::set<std::string> logs;
  std::string text;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const SimulationReport report = simulate(seed, body, options);
    REQUIRE_MESSAGE(report.ok(), report.failure);
    REQUIRE_MESSAGE(!report.told.empty(), "seed ", seed, ": no step was said");
    const std::string steps = words_of(report.told);
    if (logs.insert(steps).second) text += "seed " + std::to_string(seed) + '\n' + steps;
  }
  CHECK(logs.size() > seeds / 4);  // schedules differ
  const char* const folder = std::getenv("HEDDLE_STEP_LOGS");
  if (folder == nullptr) return;
  std::ofstream file(std::filesystem::path(folder) / (model + "." + run + ".log"));
  file << text;
  REQUIRE(file.flush().good());
}

}  // namespace heddle::test

#endif
