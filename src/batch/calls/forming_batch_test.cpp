// A forming batch by itself, on one thread: who is told, who leads, and what is still to be written.
#include "batch/calls/forming_batch.h"

#include <doctest/doctest.h>

#include <set>

#include "batch/calls/submission_fixture.h"

namespace heddle::batch {

namespace {

using Note = Seat::Note;
constexpr size_t kNoSeat = FormingBatch::kNoSeat;

// Room for more members than seats are taken. Nothing asks its slot for memory.
struct Taken {
  explicit Taken(size_t seats)
      : batch(layout, static_cast<int64_t>(seats + 2),
              std::make_shared<runtime::Slot>(nullptr, true, std::make_shared<runtime::Slot::Held>())) {
    batch.seats = batch.living = seats;
  }
  void leave_empty(size_t seat) {
    batch.members[seat].absent = submitted({});
    batch.members[seat].leave_empty();
    batch.unwritten.add_relaxed(FormingBatch::kAbsent);
  }
  // Whose seats have been told, and takes that back.
  std::set<size_t> told() {
    std::set<size_t> out;
    for (size_t seat = 0; seat < batch.members.size(); ++seat) {
      if (batch.members[seat].seat.take(Note::done)) out.insert(seat);
    }
    return out;
  }
  RowLayout layout = *RowLayout::make({}, {}, {}, false);
  FormingBatch batch;
};

}  // namespace

TEST_CASE("of several notes a seat finds the most important one first, each once") {
  Seat seat;
  for (const Note note : {Note::ask, Note::cancelled, Note::done, Note::lead}) seat.tell(note);
  for (const Note note : {Note::lead, Note::done, Note::cancelled, Note::ask})
    CHECK(seat.wait(Deadline::never()) == note);
  CHECK(seat.wait(Deadline::at(TimePoint::min())) == Note::none);
  seat.tell(Note::ask);
  CHECK_FALSE(seat.take(Note::done));
  CHECK(seat.take(Note::ask));
  CHECK_FALSE(seat.take(Note::ask));
}

TEST_CASE("inputs of as many rows as the last run here had stay, with zeros behind the rows that came") {
  Taken t(3);
  std::vector<float> rows(8, 7);
  t.batch.rows = 3;
  t.batch.run_rows = 4;
  CHECK_FALSE(t.batch.stage_again());  // nothing ran here
  t.batch.inputs = {
      device::View::contiguous(reinterpret_cast<std::byte*>(rows.data()), ir::DType::kF32, {4, 2})};
  CHECK(t.batch.stage_again());
  CHECK(rows == std::vector<float>{7, 7, 7, 7, 7, 7, 0, 0});
  t.batch.run_rows = 8;
  CHECK_FALSE(t.batch.stage_again());
}

TEST_CASE("a result is told to a few by each who has it, and to no one twice") {
  Taken t(6);
  t.batch.tell_next();
  CHECK(t.told() == std::set<size_t>{0, 1, 2, 3});
  t.batch.tell_next();
  CHECK(t.told() == std::set<size_t>{4, 5});
  t.batch.tell_next();
  CHECK(t.told().empty());
}

TEST_CASE("who has left, has the result or has no thread is passed over") {
  Taken t(6);
  t.batch.members[0].met.store_relaxed(true);
  t.leave_empty(2);
  t.batch.members[4].met.store_relaxed(true);
  t.batch.tell_next();
  CHECK(t.told() == std::set<size_t>{1, 3, 5});
  CHECK_FALSE(t.batch.members[2].met.load_relaxed());  // a thread of leaders.h answers it
}

TEST_CASE("what a seat without a thread is told is the teller's to do") {
  Member member;
  CHECK(member.tell(Note::done));
  CHECK(member.seat.take(Note::done));
  member.leave_empty();
  CHECK_FALSE(member.tell(Note::lead));
  CHECK_FALSE(member.seat.take(Note::lead));
}

TEST_CASE("the last to write a batch that is taken learns it, or who takes the batch") {
  Taken t(2);
  CHECK_FALSE(t.batch.is_last_to_write(false));  // not taken yet
  CHECK_FALSE(t.batch.is_written_when_taken());
  CHECK(t.batch.is_last_to_write(true));
  Taken written(2);
  CHECK_FALSE(written.batch.is_last_to_write(true));
  CHECK_FALSE(written.batch.is_last_to_write(false));
  CHECK(written.batch.is_written_when_taken());
}

TEST_CASE("the first member with a thread that has not left leads, else the first that has not left") {
  Taken t(3);
  CHECK(t.batch.has_threads());
  CHECK_FALSE(t.batch.has_absents());
  CHECK(t.batch.best_leader() == 0);
  t.leave_empty(0);
  CHECK(t.batch.has_absents());
  CHECK(t.batch.best_leader() == 1);
  t.batch.members[1].gone = true;
  CHECK(t.batch.best_leader() == 2);
  t.batch.members[2].gone = true;
  CHECK(t.batch.best_leader() == 0);  // without a thread
  t.batch.members[0].gone = true;
  CHECK(t.batch.first_living() == 3);
  Taken absent(2);
  absent.leave_empty(0);
  absent.leave_empty(1);
  CHECK_FALSE(absent.batch.has_threads());
  CHECK(absent.batch.best_leader() == 0);
  absent.batch.members[0].gone = true;
  CHECK(absent.batch.best_leader() == 1);
}

TEST_CASE("who led before leads again, unless it has left, sleeps, has no thread or is no member") {
  Taken t(2);
  CHECK(t.batch.leader_of_before() == kNoSeat);
  for (const size_t seat : {0, 1}) {
    t.batch.led_before.store_relaxed(seat + 1);
    CHECK(t.batch.leader_of_before() == seat);
    t.batch.members[seat].gone = true;
    CHECK(t.batch.leader_of_before() == kNoSeat);
  }
  Taken absent(1);
  absent.batch.led_before.store_relaxed(1);
  absent.leave_empty(0);
  CHECK(absent.batch.leader_of_before() == kNoSeat);
  absent.batch.led_before.store_relaxed(2);  // beyond the seats that are taken
  CHECK(absent.batch.leader_of_before() == kNoSeat);
}

TEST_CASE("a batch awaits answers of those seats, from one to before another, that have no thread and stay") {
  Taken t(4);
  CHECK_FALSE(t.batch.awaits_answers(0, 4));
  t.leave_empty(2);
  CHECK(t.batch.awaits_answers(0, 4));
  CHECK(t.batch.awaits_answers(2, 3));
  CHECK_FALSE(t.batch.awaits_answers(0, 2));
  CHECK_FALSE(t.batch.awaits_answers(3, 4));
  t.batch.members[2].gone = true;
  CHECK_FALSE(t.batch.awaits_answers(0, 4));
}

TEST_CASE("a batch without a slot is for one caller") {
  const RowLayout layout = *RowLayout::make({}, {}, {}, false);
  const FormingBatch batch(layout, 7, nullptr);
  CHECK(batch.alone);
  CHECK(batch.members.size() == 1);
  CHECK_FALSE(Taken(2).batch.alone);
}

}  // namespace heddle::batch
