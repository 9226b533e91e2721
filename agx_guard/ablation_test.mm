// Each of the three mechanisms is necessary, and together they are enough: the stress with one left out, and
// with all.
//
// AGX_GUARD_RUNS sets how many runs with everything on there are, half of them in each mode; 200 is the
// figure of docs/apple-report.md.
#include "test_gpu.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

using namespace agx_guard_test;

namespace {

// Under a sanitizer a race or a use after free is reported before it crashes: then any bad end counts.
constexpr int kRuns = kSanitized ? 3 : 20, kGuardedRuns = kSanitized ? 20 : 200;

struct Outcome {
  int crashed = 0, lost = 0;
  std::string last;
};

// Four runs at a time: a guarded run waits more than it computes.
Outcome run(const std::string& environment, const std::string& mode, int ms, int runs, bool guarded) {
  constexpr int kTogether = 4;
  const std::string command = folder() + "agx_guard_stress " + mode + " 2 " + std::to_string(ms);
  Outcome lanes[kTogether], outcome;
  {
    std::vector<std::jthread> threads;
    for (int lane = 0; lane < kTogether; ++lane) {
      threads.emplace_back([&, lane] {
        for (int i = lane; i < runs; i += kTogether) {
          const Child child = run_child(environment, command, guarded);
          const bool crashed = kSanitized ? child.status != 0 : child.status >= 128;
          lanes[lane].crashed += crashed;
          lanes[lane].lost += child.status != 0 && !crashed;
          lanes[lane].last = child.output;
        }
      });
    }
  }
  for (const Outcome& lane : lanes) {
    outcome.crashed += lane.crashed;
    outcome.lost += lane.lost;
    outcome.last += lane.last;
  }
  return outcome;
}

}  // namespace

TEST_CASE("without the guard every run of the stress crashes") {
  for (const char* mode : {"null", "raw"}) {
    INFO(std::string(mode));
    const Outcome outcome = run("", mode, 5000, kRuns, false);
    INFO(outcome.last);
    CHECK(outcome.crashed == kRuns);
  }
}

TEST_CASE("with one mechanism left out every run of the stress crashes") {
  for (const char* without : {"originals", "keep", "order"}) {
    INFO(std::string(without));
    const Outcome outcome = run(std::string("AGX_GUARD_WITHOUT=") + without, "raw", 5000, kRuns, true);
    INFO(outcome.last);
    CHECK(outcome.crashed == kRuns);
  }
}

TEST_CASE("with all of them no run crashes, and all work that was sent is done") {
  const char* const wanted = getenv("AGX_GUARD_RUNS");
  const int runs = wanted ? atoi(wanted) : kGuardedRuns;
  for (const char* mode : {"null", "raw"}) {
    INFO(std::string(mode));
    const Outcome outcome = run("AGX_GUARD_WARN_MS=0", mode, 100, runs / 2, true);
    INFO(outcome.last);
    CHECK(outcome.crashed == 0);
    CHECK(outcome.lost == 0);
  }
}

TEST_CASE("the published binary patch, which clears before the unlock, does not cure the double") {
  const Outcome outcome = run("AGX_DOUBLE_PATCH=1", "null", 5000, kRuns, false);
  INFO(outcome.last);
  CHECK(outcome.crashed == kRuns);
}
