// Every public operation meets every fault of the device at every call of the driver where it can come.
// HEDDLE_SIM_OPERATION and HEDDLE_SIM_SEED choose; the first failure ends it, since what it leaves behind
// would disturb the next one.
#include <cstdlib>

#include "trial_fixture.h"

namespace heddle::simulated {
namespace {

constexpr uint64_t kSeeds = 2;

// What is refused once is asked for again; what is refused from then on has to be given up.
bool may_last(sim::Fault fault) {
  using enum sim::Fault;
  return fault == kAllocation || fault == kDeviceMemory || fault == kStagingMemory || fault == kQueue ||
         fault == kCompile || fault == kSubmit || fault == kLateCompletion;
}

struct Enumeration {
  int64_t trials = 0;
  std::array<int64_t, kFaults> by_fault{};

  void run(const Operation& operation, uint64_t seed, const sim::PlannedFault& planned, size_t faulty) {
    const SimulationReport report = simulate(
        seed, [&](Simulation& simulation) { run_trial(simulation, operation, planned, faulty); },
        of_trials());
    ++trials;
    ++by_fault[static_cast<size_t>(planned.fault)];
    REQUIRE_MESSAGE(report.ok(), "operation '", std::string(operation.name), "', fault ", to_string(planned),
                    " of device ", faulty, ": ", report.failure);
  }

  void run_all(const Operation& operation, uint64_t seed) {
    for (size_t faulty = 0; faulty < operation.devices; ++faulty) run_all(operation, seed, faulty);
  }
  void run_all(const Operation& operation, uint64_t seed, size_t faulty) {
    // Twice: what a process makes once, the first run has made.
    Points points{};
    SimulationReport report;
    for (int time = 0; time < 2; ++time) {
      report = simulate(
          seed, [&](Simulation& simulation) { points = run_trial(simulation, operation, {}, faulty); },
          of_trials());
      REQUIRE_MESSAGE(report.ok(), "operation '", std::string(operation.name),
                      "', no fault: ", report.failure);
    }
    for (size_t i = 0; i < kFaults; ++i) {
      const auto fault = static_cast<sim::Fault>(i);
      for (int64_t nth = 1; nth <= points[i]; ++nth) {
        run(operation, seed, {fault, nth}, faulty);
        if (may_last(fault)) run(operation, seed, {fault, nth, true}, faulty);
      }
    }
  }
};

TEST_CASE(
    "simulated: every operation meets every fault at every call of the driver, is answered once, and leaves "
    "the device whole or named lost") {
  Enumeration all;
  const char* const only = std::getenv("HEDDLE_SIM_OPERATION");
  const auto [first, last] = heddle::test::asked_seeds(kSeeds);
  for (const Operation& operation : operations()) {
    if (only != nullptr && std::string_view(only) != operation.name) continue;
    const int64_t before = all.trials;
    for (uint64_t seed = first; seed <= last; ++seed) all.run_all(operation, seed);
    CHECK(all.trials - before > 50);
    MESSAGE(std::string(operation.name), ": ", (all.trials - before));
  }
  for (const sim::FaultLine& line : sim::kFaultLines) {
    MESSAGE(std::string(line.word), ": ", all.by_fault[static_cast<size_t>(line.fault)]);
    CHECK_MESSAGE((only != nullptr || all.by_fault[static_cast<size_t>(line.fault)] > 0), "no operation met ",
                  std::string(line.word));
  }
  MESSAGE((last - first + 1), " seeds: ", all.trials, " operations with a fault");
  CHECK((only != nullptr || first == last || all.trials > 4000));
}

// Seeds that find what was wrong. A new step of the simulation moves schedules, so that another seed may be
// needed: the removals that name this test tell.
struct Kept {
  const char* operation;
  std::optional<sim::PlannedFault> fault;
  uint64_t seed;
  size_t faulty = 0;
};
const Kept kKept[] = {
    // A batch that was made, and not needed in the end, stayed in stock with nobody there.
    {"call", sim::PlannedFault{sim::Fault::kAllocation, 2}, 1},
    // So did one of requests that had come together.
    {"queue", std::nullopt, 1},
    // Memory that batches kept for callers expected back was out of reach for those who needed it.
    {"queue, cancelled", sim::PlannedFault{sim::Fault::kDeviceMemory, 1}, 1},
    // A wait for a stream that failed beside it said unavailable, not what had happened.
    {"event", sim::PlannedFault{sim::Fault::kQueueFailure, 4}, 9},
    // So did one for a queue that had failed before its timeline told.
    {"event", sim::PlannedFault{sim::Fault::kQueueFailure, 2}, 18000001},
    // A callback was called for what it asked for itself, until the stack ended.
    {"pressure", sim::PlannedFault{sim::Fault::kAllocation, 1, true}, 1},
    // A closed device drew all calls of its model, since it had none under way.
    {"replicas: close a device", std::nullopt, 1},
};

TEST_CASE("simulated: operations that a fault once left wrong are whole after it") {
  for (const Kept& kept : kKept) {
    const SimulationReport report = simulate(
        kept.seed,
        [&](Simulation& simulation) {
          run_trial(simulation, operation_named(kept.operation), kept.fault, kept.faulty);
        },
        of_trials());
    CHECK_MESSAGE(report.ok(), std::string(kept.operation), ", ",
                  kept.fault ? to_string(*kept.fault) : "no fault", ": ", report.failure);
  }
}

}  // namespace
}  // namespace heddle::simulated
