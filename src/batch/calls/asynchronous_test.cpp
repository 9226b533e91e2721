// Batches of an asynchronous device: who gives their lanes back.
#include "batch/calls/coalescer_fixture.h"
#include "batch/calls/submission_fixture.h"

namespace heddle::batch {

namespace {

runtime::test::TestOptions asynchronous(int lanes) {
  runtime::test::TestOptions options;
  options.asynchronous = true;
  options.lanes = lanes;
  return options;
}

}  // namespace

// As many permits as lanes: one that came back late would let a leader park, or need the reaper.
TEST_CASE("lanes of batches come back with no thread between: no leader parks and the reaper is not woken") {
  constexpr int kLanes = 4, kCallers = 12, kSubmitters = 4, kRounds = 60;
  Fixture f(with(kLanes), false, false, asynchronous(kLanes));
  Atomic<int> right{0}, answered{0};
  run_together(kCallers + kSubmitters, [&](int thread) {
    for (int round = 0; round < kRounds; ++round) {
      const auto rows = std::make_shared<Rows>(1, static_cast<float>(1000 * thread + round));
      if (thread < kCallers) {
        right.add_relaxed(f.right(*rows, f.call(*rows)) ? 1 : 0);
        continue;
      }
      Coalescer::Submission sent;
      sent.absent = submitted(
          rows->view(),
          [&f, &right, &answered, rows](Result<std::vector<View>> result) {
            right.add_relaxed(f.right(*rows, result) ? 1 : 0);
            answered.add_release(1);
          },
          rows);
      REQUIRE(f.coalescer->submit(std::move(sent)).ok());
    }
  });
  wait_until([&] { return answered.load_acquire() == kSubmitters * kRounds; });
  CHECK(right.load_relaxed() == (kCallers + kSubmitters) * kRounds);
  const auto batches = f.coalescer->stats();
  CHECK(batches.calls == static_cast<uint64_t>((kCallers + kSubmitters) * kRounds));
  const auto stats = f.runtime->stats();
  CHECK(stats.governor.entered == batches.batches);
  CHECK(stats.governor.parked == 0);
  CHECK(stats.reaper_rings == 0);
}

}  // namespace heddle::batch
