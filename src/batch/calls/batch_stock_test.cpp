#include "batch/calls/batch_stock.h"

#include <doctest/doctest.h>

#include "batch/calls/coalescer_fixture.h"
#include "batch/calls/submission_fixture.h"

namespace heddle::batch {

namespace {

struct Stocked {
  Fixture f;
  RowLayout layout = *RowLayout::make(f.model->inputs(), f.model->outputs(), {}, false);
  Ref<BatchStock> stock = std::make_shared<BatchStock>(2, true);
  std::vector<ir::Extents> kind{ir::Extents{4}};

  Ref<FormingBatch> lent(int64_t rows) {
    auto batch = std::make_unique<FormingBatch>(layout, rows, f.runtime->slots().take());
    batch->row_extents = kind;
    return stock->lend(std::move(batch));
  }
};

}  // namespace

TEST_CASE("what each caller of a batch writes is on a cache line that others do not read") {
  constexpr uintptr_t kLine = 64;
  const auto line_of = [](const void* word) { return reinterpret_cast<uintptr_t>(word) / kLine; };
  CHECK(sizeof(OpenSeats) == kLine);
  CHECK(alignof(OpenSeats) == kLine);
  CHECK(sizeof(Member) % kLine == 0);
  CHECK(alignof(Member) == kLine);
  Stocked s;
  const Ref<FormingBatch> lent = s.lent(4);
  const FormingBatch& batch = *lent;
  const std::vector<uintptr_t> lines = {line_of(&batch.members),   line_of(&batch.rows),
                                        line_of(&batch.unwritten), line_of(&batch.answered),
                                        line_of(&batch.untold),    line_of(&batch.outputs)};
  for (size_t i = 1; i < lines.size(); ++i) CHECK(lines[i] > lines[i - 1]);
}

TEST_CASE("a batch that is let go comes back as it was made, for as many rows of its kind and no others") {
  Stocked s;
  Ref<FormingBatch> batch = s.lent(8);
  const FormingBatch* const which = batch.get();
  batch->seats = batch->living = 1;
  batch->rows = batch->living_rows = 3;
  batch->id = 7;
  batch->show_answer();
  batch->taken = batch->done = true;
  batch->failure = Status::invalid("of the last run");
  Member& member = batch->members[0];
  member.absent = submitted({});
  member.gone = true;
  member.met.store_relaxed(true);
  member.is_absent.store_relaxed(true);
  member.seat.tell(Seat::Note::done);
  CHECK(s.stock->take(s.layout, s.kind, 1) == nullptr);
  CHECK_FALSE(s.stock->has(s.layout, s.kind, 1));
  batch.reset();

  const std::vector<ir::Extents> others{ir::Extents{5}};
  const RowLayout another = s.layout;
  CHECK(s.stock->has(s.layout, s.kind, 8));
  CHECK_FALSE(s.stock->has(s.layout, others, 8));
  CHECK_FALSE(s.stock->has(another, s.kind, 8));
  CHECK_FALSE(s.stock->has(s.layout, s.kind, 9));
  CHECK(s.stock->take(s.layout, others, 8) == nullptr);
  CHECK(s.stock->take(another, s.kind, 8) == nullptr);
  CHECK(s.stock->take(s.layout, s.kind, 9) == nullptr);
  const Ref<FormingBatch> again = s.stock->take(s.layout, s.kind, 8);
  REQUIRE(again.get() == which);
  CHECK(again->seats == 0);
  CHECK(again->living == 0);
  CHECK(again->rows == 0);
  CHECK(again->living_rows == 0);
  CHECK_FALSE(again->taken);
  CHECK_FALSE(again->done);
  CHECK_FALSE(again->is_answered());
  CHECK(again->failure.ok());
  CHECK(again->members[0].absent == nullptr);
  CHECK_FALSE(again->members[0].gone);
  CHECK_FALSE(again->members[0].met.load_relaxed());
  CHECK_FALSE(again->members[0].is_absent.load_relaxed());
  CHECK_FALSE(again->members[0].seat.take(Seat::Note::done));
}

TEST_CASE(
    "a caller that waits empties what others have used, one a time, and takes none from those who take") {
  Stocked s;
  const auto use = [](const Ref<FormingBatch>& batch) {
    batch->seats = 1;
    batch->members[0].met.store_relaxed(true);
    batch->failure = Status::invalid("of the last run");
  };
  s.stock->tidy();  // there is none
  Ref<FormingBatch> one = s.lent(4), other = s.lent(4);
  FormingBatch* const first = one.get();
  FormingBatch* const second = other.get();
  use(one);
  use(other);
  one.reset();
  other.reset();
  CHECK_FALSE(first->failure.ok());  // kept by the stock
  s.stock->tidy();
  CHECK(first->failure.ok());
  CHECK(first->seats == 0);
  CHECK_FALSE(second->failure.ok());
  one = s.stock->take(s.layout, s.kind, 4);  // the one that needs nothing
  CHECK(one.get() == first);
  other = s.stock->take(s.layout, s.kind, 4);
  REQUIRE(other.get() == second);
  CHECK(second->failure.ok());
  CHECK_FALSE(second->members[0].met.load_relaxed());
  s.stock->tidy();
  CHECK(s.stock->take(s.layout, s.kind, 4) == nullptr);
}

TEST_CASE("where no caller looks a batch is emptied as it comes back") {
  Stocked s;
  s.stock = std::make_shared<BatchStock>(2, false);
  Ref<FormingBatch> batch = s.lent(4);
  const FormingBatch* const which = batch.get();
  batch->seats = 1;
  batch.reset();
  CHECK(which->seats == 0);
}

TEST_CASE("what a batch holds of its callers is let go with it, though nobody waits") {
  Stocked s;
  const auto held = std::make_shared<int>(7);
  Ref<FormingBatch> batch = s.lent(4);
  batch->seats = 1;
  batch->unwritten.add_relaxed(FormingBatch::kAbsent);
  batch->members[0].absent = submitted({}, {}, held);
  REQUIRE(held.use_count() == 2);
  batch.reset();
  CHECK(held.use_count() == 1);
}

TEST_CASE("a batch that comes back with the run that nobody waited for keeps its model open no longer") {
  Stocked s;
  Ref<FormingBatch> batch = s.lent(4);
  batch->seats = 1;
  batch->in_flight.emplace(runtime::InFlight{s.f.model->enter()});
  CHECK_FALSE(s.f.model->close(Deadline::in(std::chrono::milliseconds(1))).ok());
  batch.reset();
  CHECK(s.f.model->close(Deadline::in(std::chrono::milliseconds(1))).ok());
}

TEST_CASE("a stock of batches that nobody has used or empties keeps those that come back") {
  Stocked s;
  Ref<FormingBatch> batches[] = {s.lent(4), s.lent(4)};  // as many as are kept
  for (Ref<FormingBatch>& each : batches) each.reset();
  Ref<FormingBatch> again = s.stock->take(s.layout, s.kind, 4);
  REQUIRE(again != nullptr);
  FormingBatch* const which = again.get();
  again->seats = 1;
  again->unwritten.add_relaxed(FormingBatch::kAbsent);
  again.reset();
  CHECK(s.stock->take(s.layout, s.kind, 4).get() == which);
}

TEST_CASE("the stock keeps the last to come back, and none once it is dropped until one is lent again") {
  Stocked s;
  Ref<FormingBatch> batches[] = {s.lent(1), s.lent(2), s.lent(3)};
  for (Ref<FormingBatch>& each : batches) each.reset();
  Ref<FormingBatch> last = s.stock->take(s.layout, s.kind, 3), out = s.stock->take(s.layout, s.kind, 2);
  REQUIRE(last != nullptr);
  REQUIRE(out != nullptr);
  CHECK(s.stock->take(s.layout, s.kind, 1) == nullptr);  // the first to come back had to go
  s.stock->drop();
  out.reset();
  CHECK(s.stock->take(s.layout, s.kind, 1) == nullptr);
  out = s.lent(1);
  out.reset();
  CHECK(s.stock->take(s.layout, s.kind, 1) != nullptr);
}

}  // namespace heddle::batch
