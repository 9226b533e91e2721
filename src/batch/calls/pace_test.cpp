#include "batch/calls/pace.h"

#include <doctest/doctest.h>

#include <deque>

#include "batch/calls/coalescer_fixture.h"

namespace heddle::batch {

namespace {

// A batch with a result, whose members have not been told.
struct Done {
  Done(Fixture& f, size_t members, Pace* pace)
      : layout(*RowLayout::make(f.model->inputs(), f.model->outputs(), {}, false)),
        batch(std::make_shared<FormingBatch>(layout, static_cast<int64_t>(members),
                                             f.runtime->slots().take())) {
    batch->seats = members;
    for (Member& member : batch->members) member.pace = pace;
    batch->pace.store_relaxed(pace);
  }
  int told() {  // since it was last asked
    int count = 0;
    for (Member& member : batch->members)
      count += member.seat.wait(Deadline::at(TimePoint::min())) == Seat::Note::done ? 1 : 0;
    return count;
  }
  RowLayout layout;
  Ref<FormingBatch> batch;
};

void get_through(Pace& pace) {
  Pace::Scope scope(pace);
  Pace::count_as_told();
  scope.passed();
}

}  // namespace

TEST_CASE("members are told while few are on their way, batch after batch, by threads that come in") {
  Fixture f;
  Pace pace(2, Duration(0));
  Done first(f, 3, &pace), second(f, 2, &pace);
  pace.add(first.batch);
  pace.add(second.batch);
  CHECK(first.told() == 2);
  CHECK(second.told() == 0);
  get_through(pace);  // the next comes in before it is through itself, and tells nobody
  CHECK(first.told() == 0);
  {
    const Pace::Scope comes_in(pace);
  }
  CHECK(first.told() == 1);
  get_through(pace);
  {
    const Pace::Scope comes_in(pace);
  }
  CHECK(second.told() == 1);
  CHECK(pace.waiting() == 1);
}

TEST_CASE("the last on the way tells the next, so that nobody is forgotten where no thread comes in") {
  Fixture f;
  Pace pace(2, Duration(0));
  Done done(f, 5, &pace);
  std::optional<Pace::Scope> two[2];
  for (auto& scope : two) scope.emplace(pace);
  pace.add(done.batch);
  CHECK(done.told() == 2);
  Pace::count_as_told();
  two[1]->passed();
  CHECK(done.told() == 0);
  Pace::count_as_told();
  two[1]->passed();
  CHECK(done.told() == 1);
}

TEST_CASE(
    "a thread that ends its scope without getting through is counted out, and unpaced members are told") {
  Fixture f;
  Pace pace(1, Duration(0));
  Done done(f, 4, &pace);
  done.batch->members[1].pace = nullptr;
  done.batch->members[2].pace = nullptr;
  pace.add(done.batch);
  CHECK(done.told() == 1);
  {
    const Pace::Scope fails(pace);
    Pace::count_as_told();
  }
  CHECK(done.told() == 3);  // both that are not paced, and the next that is
}

TEST_CASE("batches that threads add at once are all told, and leave the line") {
  constexpr size_t kThreads = 4, kBatches = 50, kMembers = 3;
  Fixture f;
  Pace pace(2, Duration(0));
  std::deque<Done> all;
  for (size_t i = 0; i < kThreads * kBatches; ++i) all.emplace_back(f, kMembers, nullptr);
  run_together(kThreads, [&](int thread) {
    for (size_t i = 0; i < kBatches; ++i) pace.add(all[static_cast<size_t>(thread) * kBatches + i].batch);
  });
  size_t told = 0;
  for (Done& each : all) told += static_cast<size_t>(each.told());
  CHECK(told == kThreads * kBatches * kMembers);
  CHECK(pace.waiting() == 0);
}

}  // namespace heddle::batch
