#include "runtime/streams/stream.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "base/fork.h"
#include "base/no_memory.h"
#include "device/row_faults.h"

namespace heddle::runtime {

using device::Buffer;
using device::CommandList;
using device::Point;
using device::RowFaults;
using device::View;

Turn::~Turn() {
  if (stream_ != nullptr) stream_->end_turn();
}

Result<uint64_t> Turn::submit(CommandList list, Submission extras) {
  static_cast<void>(send());  // its runs' faults say what became of it
  HEDDLE_TRY(stream_->check_usable());
  HEDDLE_TRY(stream_->order_after_others(list));
  if (stream_->synchronous_) return stream_->do_now(list);
  if (extras.joins && stream_->may_hold_back(list))
    return stream_->hold_back(std::move(list), std::move(extras));
  return stream_->submit_in_flight(std::move(list), std::move(extras));
}

Result<uint64_t> Turn::submit_prepared(const CommandList& list, Submission extras) {
  static_cast<void>(send());  // as in submit()
  HEDDLE_TRY(stream_->check_usable());
  return stream_->submit_prepared(list, std::move(extras));
}

std::optional<Result<uint64_t>> Turn::try_join(CommandList& list, Submission& extras) {
  return stream_->try_join(list, extras);
}

Status Turn::send() { return stream_->send_held(); }

Status Stream::submit_now(CommandList& list) {
  HEDDLE_TRY(check_usable());
  HEDDLE_TRY(order_after_others(list));
  return do_now(list).status();
}

Status Stream::run_now(const CommandList& list) {
  HEDDLE_TRY(check_usable());
  return do_now(list).status();
}

Stream::Stream(Ref<device::Device> device, std::unique_ptr<device::Queue> queue, StreamId id,
               const Clock& clock, std::optional<void*> foreign)
    : device_(std::move(device)),
      queue_(std::move(queue)),
      id_(id),
      clock_(&clock),
      synchronous_(device_->traits().synchronous),
      foreign_(foreign),
      generation_(fork_generation()) {}

Stream::~Stream() {
  if (fork_generation() == generation_) static_cast<void>(send_held());  // nobody else has it
  // Only to be sure that it is over: a failure has been, or will be, returned by the waits for it.
  static_cast<void>(synchronize(Deadline::never()));
}

std::optional<Turn> Stream::try_turn() {
  uint32_t seen = kFree;
  if (!turn_.cas_strong_acq_rel(seen, kTaken)) return std::nullopt;
  seam::did("turn.take");
  return Turn(this);
}

Result<Turn> Stream::turn(Deadline deadline) {
  if (std::optional<Turn> free = try_turn()) [[likely]]
    return *std::move(free);
  auto over = turn_over_.lock();
  const auto take_or_ask = [&] {
    const uint32_t before = turn_.exchange_acq_rel(kAwaited);
    seam::did("turn.ask", before);
    return before == kFree;
  };
  if (!over.wait_until(deadline, take_or_ask)) {
    return Status::deadline(to_string(id_), " was used by other threads until the deadline");
  }
  return Turn(this);
}

void Stream::end_turn() {
  const bool holds_back = held_ != nullptr;
  const uint32_t before = turn_.exchange_acq_rel(kFree);
  seam::did("turn.end", before);
  if (before == kAwaited) [[unlikely]] {
    // Empty on purpose: a waiter that has found the turn taken holds the lock until it sleeps.
    static_cast<void>(turn_over_.lock());
    seam::did("turn.tell");
    turn_over_.notify_one();
  }
  if (!holds_back) [[likely]]
    return;
  const uint32_t asked = asked_.exchange_acq_rel(0);
  seam::did("stream.look_asked", asked);
  if (asked != 0) send();
}

Event Stream::record(Timed timed) const {
  const Point point{timeline(), last_submitted()};
  timeline()->want(point.value);
  return Event(point, timed == Timed::yes ? timeline()->stamp(point.value, *clock_) : nullptr);
}

bool Stream::query() const {
  const uint64_t last = last_submitted();
  timeline()->want(last);
  if (timeline()->is_ours()) timeline()->look();
  return timeline()->done(last) || failed();
}

Status Stream::await(uint64_t value, Deadline deadline) {
  Status status = or_exhausted("a wait", [&] { return timeline()->wait(value, deadline); });
  if (timeline()->done(value) || failed()) {
    drop_finished();
  } else {
    leave_to_reaper(value);
  }
  return status;
}

void Stream::leave_to_reaper(uint64_t value) {
  if (!timeline()->ring_at(value)) drop_finished();
}

Status Stream::synchronize(Deadline deadline) const { return timeline()->wait(last_submitted(), deadline); }

uint64_t Stream::in_flight() const {
  const uint64_t reached = timeline()->reached();  // first: it never passes the value read next
  return failed() ? 0 : last_submitted() - reached;
}

Status Stream::check_usable() const {
  if (failed()) return timeline()->failure().with_context(text(id_, " has failed and takes no more work"));
  if (closed_.load_relaxed())
    return Status::unavailable(to_string(id_), " belongs to a runtime that is closed");
  return {};
}

Status Stream::order_after_others(CommandList& list) const {
  std::vector<Point> waits;
  list.for_each_buffer(
      [&](Buffer& buffer, bool write) { buffer.collect_waits(write, timeline().get(), waits); });
  for (const device::Command& command : list) {
    if (const auto* wait = std::get_if<device::Wait>(&command);
        wait != nullptr && wait->point.timeline != nullptr)
      wait->point.timeline->want(wait->point.value);
  }
  if (waits.empty()) return {};
  for (const Point& point : waits) {
    point.timeline->want(point.value);
    if (!point.timeline->failed() || point.done()) continue;
    return point.timeline->failure().with_context("a buffer was in use by a stream that failed");
  }
  list.wait_first(std::move(waits));
  return {};
}

// In the order of the commands, so that a command finds what those before it write.
void Stream::mark_buffers(CommandList& list, uint64_t value) const {
  const Point point{timeline(), value};
  const auto read = [&](const View& view) -> Ref<const RowFaults> {
    if (view.buffer == nullptr) return nullptr;
    view.buffer->mark_read(point);
    return view.buffer->writer();
  };
  const auto write = [&](const View& view, const Ref<const RowFaults>& writer) {
    if (view.buffer != nullptr) view.buffer->mark_write(point, writer);
  };
  for (device::Command& command : list) {
    if (auto* run = std::get_if<device::Run>(&command)) {
      for (const View& view : run->inputs) {
        if (Ref<const RowFaults> source = read(view)) run->sources.push_back(std::move(source));
      }
      for (const View& view : run->outputs) write(view, run->row_faults);
    } else if (const auto* copy = std::get_if<device::Copy>(&command)) {
      write(copy->to, read(copy->from));
    } else if (const auto* fill = std::get_if<device::Fill>(&command)) {
      write(fill->to, nullptr);
    }
  }
}

// What was refused because a point failed that it waits for, ends as if that had failed before: with the
// cause.
Status Stream::cause_of(const CommandList& list, Status refused) {
  if (refused.code() != Code::unavailable) return refused;
  for (const device::Command& command : list) {
    const auto* wait = std::get_if<device::Wait>(&command);
    if (wait == nullptr || wait->point.done() || !wait->point.timeline->failed()) continue;
    return wait->point.timeline->failure().with_context("what it waits for failed");
  }
  return refused;
}

// Whoever finds the timeline at a value finds that
// value, or a later one, here: it was stored before the queue could reach it.
uint64_t Stream::take_value() {
  const uint64_t value = last_.load_relaxed() + 1;
  last_.store_release(value);
  return value;
}

Result<uint64_t> Stream::do_now(const CommandList& list) {
  const uint64_t value = take_value();
  HEDDLE_TRY(queue_->submit(list, value, NoLocksHeld{}));
  if (!timeline()->done(value)) return timeline()->failure();
  return value;
}

Result<uint64_t> Stream::submit_in_flight(CommandList list, Submission extras) {
  drop_finished();
  if (foreign_.has_value()) {
    HEDDLE_TRY_ASSIGN(Point given, device_->import_stream(*foreign_, NoLocksHeld{}));
    list.wait_first({std::move(given)});
  }
  Record& record = add_record(std::move(list), std::move(extras));
  const uint64_t value = take_value();
  const Status marked = mark(record);
  HEDDLE_TRY(start(record));
  HEDDLE_TRY(marked);
  return value;
}

Result<uint64_t> Stream::submit_prepared(const CommandList& list, Submission extras) {
  assert(!synchronous_ && !foreign_.has_value());
  drop_finished();
  Record& record = add_record({}, std::move(extras));
  record.prepared = &list;
  const uint64_t value = take_value();
  HEDDLE_TRY(start(record));
  return value;
}

// Until it is accepted it stays, whoever drops what is over.
Stream::Record& Stream::add_record(CommandList list, Submission extras, int runs_together) {
  Records one;
  one.push_back({last_.load_relaxed() + 1, false, std::move(list), std::move(extras)});
  Record& made = one.front();
  const auto all = static_cast<size_t>(runs_together);
  made.joined.reserve(all - 1);
  if (all > 1) made.list.reserve(all * made.list.size());
  auto records = records_.lock();
  records->splice(records->end(), one);
  return records->back();
}

// Buffers that are marked already wait for the value, and for what it waits for by the value alone. So what
// cannot be marked is submitted with its waits only, and its submitter, who is told so, does not await it.
Status Stream::mark(Record& record) const {
  Status marked = or_exhausted("a submission", [&] {
    mark_buffers(record.list, record.value);
    return Status();
  });
  if (marked.ok()) return {};
  record.list.keep_waits();
  record.extras.awaited = false;
  return marked;
}

Status Stream::start(Record& record) {
  const uint64_t value = record.value;
  const bool awaited = record.extras.awaited;
  Status status = or_exhausted("a submission", [&]() -> Status {
    const CommandList& list = record.prepared == nullptr ? record.list : *record.prepared;
    HEDDLE_TRY(cause_of(list, queue_->submit(list, value, NoLocksHeld{})));
    if (!foreign_.has_value()) return {};
    return device_->hold_stream(*foreign_, {timeline(), value}, NoLocksHeld{});
  });
  set_accepted(record);
  // After it was accepted: a thread that the bell woke before has passed over it.
  if (awaited && status.ok()) return status;
  const Status left = or_exhausted("a submission", [&] {
    leave_to_reaper(value);
    return Status();
  });
  return status.ok() ? left : status;
}

void Stream::set_accepted(Record& record) {
  const auto others_look = records_.lock();
  record.accepted = true;
}

size_t Stream::drop_finished() {
  Records over;  // dropped after the lock: it frees memory and hands permits on
  auto records = records_.lock();
  const bool all = failed();
  const uint64_t reached = timeline()->reached();
  const auto first_left = std::find_if(records->begin(), records->end(), [&](const Record& record) {
    return !record.accepted || (!all && record.value > reached);
  });
  over.splice(over.begin(), *records, records->begin(), first_left);
  return records->size();
}

}  // namespace heddle::runtime
