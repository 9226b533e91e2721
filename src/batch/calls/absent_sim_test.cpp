// Submissions without a thread under simulated schedules: each is answered once, also when it is late or
// cancelled, and none is forgotten.
#include <algorithm>
#include <array>
#include <stop_token>

#include "base/replay_fixture.h"
#include "base/simulation_fixture.h"
#include "batch/calls/coalescer_fixture.h"
#include "batch/calls/submission_fixture.h"

namespace heddle::batch {
namespace {

using heddle::test::holds_for_seeds;
using std::chrono::microseconds;

constexpr size_t kSubmitters = 3, kEach = 4;

// What a submission brought, until that is dropped: a row that is copied later is seen to be.
constexpr float kDropped = -1000;
Ref<const void> dropped_with(const std::shared_ptr<Rows>& rows) {
  return {rows.get(), [rows](const void*) { std::fill(rows->values.begin(), rows->values.end(), kDropped); }};
}

bool has_dropped(const View& rows) {
  const std::vector<float> values = runtime::test::values_of(rows);
  return std::find(values.begin(), values.end(), kDropped) != values.end();
}

// The seat that would have asked the policy again leaves at its deadline, and the next one has to ask at the
// very same time: 377 hung.
TEST_CASE("simulated: submissions that are late or cancelled are answered once, and the others run") {
  int right = 0, late = 0, cancelled = 0;
  holds_for_seeds(600, [&](Simulation& sim) {
    CoalescerOptions options = with(1 + static_cast<int>(sim.random(3)), 8);
    options.look_on = static_cast<int>(sim.random(3));
    Fixture fixture(options, false, false, {.asynchronous = true});
    fixture.kernel = [&sim](const device::Run& run) {
      sim.expect(!has_dropped(run.inputs[0]), "the rows of who left stay until they are copied");
      sim.pause(microseconds(5 + sim.random(100)));
      return Status();
    };
    std::stop_source stop;
    Atomic<int> answers{0}, in_time{0}, too_late{0}, stopped{0};
    run_together(kSubmitters + 1, [&](int thread) {
      if (thread == kSubmitters) {
        sim.pause(microseconds(sim.random(150)));
        stop.request_stop();
        return;
      }
      for (size_t i = 0; i < kEach; ++i) {
        const auto rows = std::make_shared<Rows>(1 + static_cast<int64_t>(i % 2),
                                                 static_cast<float>(10 * thread) + static_cast<float>(i));
        Coalescer::Submission call;
        const uint64_t kind = sim.random(4);
        if (kind == 0) call.deadline = Deadline::in(microseconds(sim.random(80)));
        if (kind == 1) call.cancel = stop.get_token();
        const auto then = [&, rows](const Result<std::vector<View>>& result) {
          const Code code = result.status().code();
          sim.expect(!result.ok() || fixture.right(*rows, result), "its own rows");
          sim.expect(result.ok() || code == Code::deadline || code == Code::cancelled,
                     "or late, or cancelled");
          (result.ok() ? in_time : code == Code::deadline ? too_late : stopped).add_relaxed(1);
          answers.add_release(1);
          answers.notify_all();
        };
        call.absent = submitted(rows->view(), then, dropped_with(rows));
        sim.expect(fixture.coalescer->submit(std::move(call)).ok(), "it is taken");
      }
    });
    constexpr int kAll = static_cast<int>(kSubmitters * kEach);
    for (int seen = answers.load_acquire(); seen < kAll; seen = answers.load_acquire()) answers.wait(seen);
    fixture.coalescer->close();
    sim.expect(answers.load_acquire() == kAll, "each had one answer");
    right += in_time.load_relaxed();
    late += too_late.load_relaxed();
    cancelled += stopped.load_relaxed();
  });
  if (heddle::test::number_in("HEDDLE_SIM_SEED")) return;
  CHECK(right > 600);
  CHECK(late > 0);
  CHECK(cancelled > 0);
}

// A seat without a thread that is told before its submission has said so: who tells it, or who sits down,
// passes on what was told.
TEST_CASE("simulated: a model closed while callers and submissions sit down answers each of them once") {
  int right = 0, refused = 0;
  holds_for_seeds(600, [&](Simulation& sim) {
    CoalescerOptions options = with(1 + static_cast<int>(sim.random(2)), 8);
    options.look_on = static_cast<int>(sim.random(3));
    Fixture fixture(options, false, false, {.asynchronous = true});
    fixture.kernel = [&sim](const device::Run&) {
      sim.pause(microseconds(5 + sim.random(40)));
      return Status();
    };
    Atomic<int> answers{0}, rows_right{0}, unavailable{0};
    const auto answered = [&](Rows& rows, const Result<std::vector<View>>& result) {
      sim.expect(!result.ok() || fixture.right(rows, result), "its own rows");
      sim.expect(result.ok() || result.status().code() == Code::unavailable, "or that the model is closed");
      (result.ok() ? rows_right : unavailable).add_relaxed(1);
      answers.add_release(1);
      answers.notify_all();
    };
    run_together(2 * kSubmitters + 1, [&](int thread) {
      if (thread == 2 * kSubmitters) {
        sim.pause(microseconds(sim.random(100)));
        return fixture.coalescer->close();
      }
      for (size_t i = 0; i < kEach; ++i) {
        const auto rows = std::make_shared<Rows>(1, static_cast<float>(10 * thread) + static_cast<float>(i));
        if (thread < static_cast<int>(kSubmitters)) {
          const View view = rows->view();
          answered(*rows, fixture.coalescer->join({&view, 1}, Deadline::never(), {}, nullptr));
          continue;
        }
        Coalescer::Submission call;
        call.absent = submitted(
            rows->view(), [&, rows](const Result<std::vector<View>>& result) { answered(*rows, result); });
        if (const Status taken = fixture.coalescer->submit(std::move(call)); !taken.ok())
          answered(*rows, taken);
      }
    });
    constexpr int kAll = static_cast<int>(2 * kSubmitters * kEach);
    for (int seen = answers.load_acquire(); seen < kAll; seen = answers.load_acquire()) answers.wait(seen);
    sim.expect(answers.load_acquire() == kAll, "each had one answer");
    right += rows_right.load_relaxed();
    refused += unavailable.load_relaxed();
  });
  if (heddle::test::number_in("HEDDLE_SIM_SEED")) return;
  CHECK(right > 600);
  CHECK(refused > 600);
}

TEST_CASE("replayed: parker: what a seat is told while its thread leaves it empty, one thread acts upon") {
  heddle::test::log_for_model("parker", "seat", 100, [](Simulation& sim) {
    Member member;
    std::array<Atomic<int>, 3> acted;
    constexpr std::array kNotes = {Seat::Note::ask, Seat::Note::cancelled, Seat::Note::done};
    run_together(4, [&](int thread) {
      sim.play(thread);
      if (sim.random(2) == 0) sim.pause(microseconds(sim.random(3)));
      if (thread < 3) {
        const auto i = static_cast<size_t>(thread);
        if (!member.tell(kNotes[i])) acted[i].add_relaxed(1);
        return;
      }
      member.leave_empty();
      if (sim.random(2) == 0) sim.pause(microseconds(1));
      for (size_t i = 0; i < 3; ++i) {
        if (member.seat.take(kNotes[i])) acted[i].add_relaxed(1);
      }
    });
    for (const Atomic<int>& times : acted)
      sim.expect(times.newest() <= 1, "not twice; the model knows that none is lost");
  });
}

}  // namespace
}  // namespace heddle::batch
