// The same as adding_test.cpp under simulated schedules.
#include <doctest/doctest.h>

#include "base/simulation_fixture.h"
#include "runtime/streams/adding_fixture.h"

namespace heddle::runtime {

using heddle::test::holds_for_seeds;

TEST_CASE("simulated: once a native stream is known nothing is held back, whoever submits meanwhile") {
  holds_for_seeds(200, [](Simulation& sim) {
    test::Adding adding;
    const char* const wrong = test::native_is_asked_for(adding, 2, 6);
    sim.expect(wrong == nullptr, wrong == nullptr ? "" : wrong);
  });
}

TEST_CASE(
    "simulated: what a stream holds back that its owner forgets is run, and ends for who waits for it") {
  holds_for_seeds(200, [](Simulation& sim) {
    test::Adding adding;
    const int runs = 1 + static_cast<int>(sim.random(2 * test::Adding::kTogether));
    const char* const wrong = test::owner_forgets_stream(adding, runs);
    sim.expect(wrong == nullptr, wrong == nullptr ? "" : wrong);
  });
}

}  // namespace heddle::runtime
