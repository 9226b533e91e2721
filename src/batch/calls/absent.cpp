// absent.cpp: what is done for members without a thread: leading, the time, leaving, the answer.
#include <algorithm>
#include <cassert>
#include <utility>

#include "base/trace.h"
#include "batch/calls/coalescer.h"

namespace heddle::batch {

namespace {

// The timer of the policy, in the place of a seat, less the seat that asks. Seats of one batch may have to
// ask at the same time: if the timer of one that has left stood for the other's, nobody would ask.
constexpr uint64_t kAsks = ~uint64_t{0};

// Few batches are answered at once, and several threads share each.
size_t answers_each(const FormingBatch& batch) {
  constexpr size_t kThreads = 4, kLeast = 4, kMost = 16;
  return std::clamp((batch.seats + kThreads - 1) / kThreads, kLeast, kMost);
}

}  // namespace

// By the batch's and the seat's numbers, so that the thread that answers knows it without being told.
Leaders::Timer Coalescer::timer_of(const FormingBatch& batch, const Member& member) {
  return {member.deadline.when(), batch.id, static_cast<uint64_t>(&member - batch.members.data())};
}

// What time and cancellation keep is weak: they may come when all is over.
std::function<void()> Coalescer::weakly(const Here& who, Seat::Note note) {
  return [self = weak_from_this(), batch = std::weak_ptr(who.batch), seat = who.seat, note] {
    const Ref<Coalescer> calls = self.lock();
    const Batch living = batch.lock();
    if (calls != nullptr && living != nullptr) calls->serve_later({living, seat, true}, note);
  };
}

// While the seat counts as not written, so that no leader has it yet.
void Coalescer::watch(const Here& me, const std::stop_token& cancel) {
  Member& member = me.member();
  if (!member.deadline.is_never()) {
    leaders_.at(timer_of(*me.batch, member), weakly(me, Seat::Note::none));
  }
  if (cancel.stop_possible()) {
    member.on_cancel = std::make_unique<Member::OnCancel>(cancel, weakly(me, Seat::Note::cancelled));
  }
}

void Coalescer::follow(const Here& me, const Next& next) {
  if (next.ask_at == TimePoint::max()) return;
  leaders_.at({next.ask_at, me.batch->id, kAsks - me.seat}, weakly(me, Seat::Note::ask));
}

void Coalescer::serve_later(const Here& who, Seat::Note note) {
  leaders_.post([self = shared_from_this(), who, note] { self->serve(who, note); });
}

void Coalescer::serve(const Here& who, Seat::Note note) {
  switch (note) {
    case Seat::Note::lead:
      return who.batch->alone ? lead_lone(who) : lead_absent(who.batch);
    case Seat::Note::done:
      return answer_absents(who.batch);
    case Seat::Note::ask:
      return follow(who, ask(who));
    case Seat::Note::cancelled:
      if (try_leave(who)) give(who.batch, who.member(), cancelled());
      return;
    case Seat::Note::none:
      if (try_leave(who)) give(who.batch, who.member(), late());
      return;
  }
}

void Coalescer::lead_lone(const Here& who) {
  Member& member = who.member();
  const CallShape shape{member.rows, who.batch->row_extents, member.lengths};
  const Absent& absent = *member.absent;
  const Keep keep = [&] { return absent.keep(); };
  const Caller caller{absent.inputs(), who.batch->layout, shape, member.deadline, &keep};
  give(who.batch, member, run_alone(caller, who));
}

void Coalescer::lead_absent(const Batch& batch) {
  const trace::Span span("batch", "run", batch->id);
  Deadline until = Deadline::at(TimePoint::min());
  Next next;
  const bool wanted = [&] {
    auto state = state_.lock();
    count_in(*state);
    for (size_t seat = 0; seat < batch->seats; ++seat) {
      const Member& member = batch->members[seat];
      if (!member.gone) until = Deadline::at(std::max(until.when(), member.deadline.when()));
    }
    if (batch->living != 0) return true;
    --state->busy;
    advance(*state, nullptr, next);
    return false;
  }();
  wake(next);
  if (!wanted) return;
  check_padding(*batch);
  if (!run_and_publish(*batch, until, FormingBatch::kNoSeat, false).ok()) return leave_run(batch);
  if (batch->told_at == nullptr) {
    batch->tell_next();
  } else {
    batch->told_at->add(batch);
  }
  answer_absents(batch);
}

// With rows that are staged: a caller's memory is its own again once it has left.
void Coalescer::check_padding(const FormingBatch& batch) {
  if (padding_ == nullptr || &batch.layout != &equal_ || !padding_->is_unknown() || !padding_->claim())
    return;
  padding_->check(staged(batch, batch.members[0].rows));
}

// The run was not over when the last of its members had to leave. Those with a thread have left before: one
// that had not would lead.
void Coalescer::leave_run(const Batch& batch) {
  std::vector<Member*> leaving;
  Next next;
  {
    auto state = state_.lock();
    count_in(*state);
    for (size_t seat = 0; seat < batch->seats; ++seat) {
      Member& member = batch->members[seat];
      if (member.gone) continue;
      assert(member.absent != nullptr);
      count_out(*state, *batch, member);
      leaving.push_back(&member);
    }
    --state->busy;
    advance(*state, nullptr, next);
  }
  wake(next);
  for (Member* member : leaving) give(batch, *member, late());
}

// So many at a time, since what is called may take long. Who begins has another thread do so as well where
// there is more. It owes an answer meanwhile: once nothing is owed, no task may be posted.
void Coalescer::answer_absents(const Batch& batch) {
  const size_t each = answers_each(*batch);
  const auto next = [&] { return batch->next_absent.add_relaxed(each); };
  bool begins = true;
  for (size_t first = next(); first < batch->seats; first = next()) {
    const size_t end = std::min(first + each, batch->seats);
    if (begins && batch->awaits_answers(first, end)) {
      begins = false;
      if (batch->awaits_answers(end, batch->seats)) serve_later({batch, 0}, Seat::Note::done);
    }
    answer_seats(batch, first, end);
  }
}

void Coalescer::answer_seats(const Batch& batch, size_t first, size_t end) {
  uint64_t answered = 0;
  for (size_t seat = first; seat < end; ++seat) {
    Member& member = batch->members[seat];
    if (!member.is_absent.load_relaxed() || member.gone) continue;
    tell(batch, member, answer(batch, member.absent->inputs(), seat));
    ++answered;
  }
  if (answered != 0) leaders_.settle(answered);
}

// Once all seats are written.
void Coalescer::answer_refused(const Batch& batch) {
  if (batch->awaits_answers(0, batch->seats)) serve_later({batch, 0}, Seat::Note::done);
}

void Coalescer::give(const Batch& batch, Member& member, Result<Views> result) {
  tell(batch, member, std::move(result));
  leaders_.settle();
}

void Coalescer::tell(const Batch& batch, Member& member, Result<Views> result) {
  if (!member.deadline.is_never()) leaders_.forget(timer_of(*batch, member));
  // The rows of one that left may still be copied from where it has them.
  const std::unique_ptr<Absent> over = member.gone ? nullptr : std::move(member.absent);
  (over == nullptr ? member.absent : over)->answer(std::move(result));
}

}  // namespace heddle::batch
