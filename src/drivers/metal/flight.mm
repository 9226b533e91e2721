#include "drivers/metal/flight.h"

#include "base/no_memory.h"
#include "drivers/metal/failure.h"
#include "drivers/metal/program.h"

namespace heddle::metal {

Result<id<MTLBuffer>> Flight::stage(uint64_t bytes) {
  HEDDLE_TRY_ASSIGN(std::list<Staged> one, staging_->take(bytes));
  staged_.splice(staged_.end(), one);
  return staged_.back().get();
}

void Flight::add_earlier(id<MTLCommandBuffer> part) {
  for (const auto& known : earlier_) {
    if (known.get() == part) return;
  }
  has_earlier_ = true;
  timeline_->split(value_);
  Status added = or_exhausted("a part of a submission", [&] {
    earlier_.push_back(Owned<id<MTLCommandBuffer>>::retain(part));
    return Status();
  });
  if (!added.ok()) spoil(std::move(added));
}

void Flight::keep_nothing_but_waits() {
  refused_ = true;
  runs_.clear();
  signals_.clear();
  waits_.clear();
}

void Flight::wait_without_commands() {
  WaitingList ready;
  settle(ready);
  settle_all(ready);
}

void Flight::waited_for() { end_waited_for(*timeline_, value_); }

void Flight::end_waited_for(MetalTimeline& timeline, uint64_t value) {
  WaitingList ready;
  timeline.end(value, {}, ready);
  settle_all(ready);
}

void Flight::completed(id<MTLCommandBuffer> last) {
  if (defences_.errors_fail_timeline) {
    for (const auto& part : earlier_) look_at(part.get());
    look_at(last);
  }
  WaitingList ready;
  timeline_->ran(value_, ready);
  settle(ready);
  settle_all(ready);
}

void Flight::look_at(id<MTLCommandBuffer> part) {
  if (!status_.ok() || [part status] != MTLCommandBufferStatusError) return;
  status_ = or_exhausted("the error of a command buffer", [&] {
    return command_buffer_failure(text("submission ", value_, " on the Metal device"), [part error]);
  });
  if (is_removal([part error])) loss_->record(status_);
}

// Without recursion: a chain of submissions may be as long as all queues hold.
void Flight::settle_all(WaitingList& ready) {
  while (!ready.empty()) {
    const Ref<Flight> flight = std::move(ready.front().flight);
    flight->place_.splice(flight->place_.begin(), ready, ready.begin());
    flight->settle(ready);
  }
}

void Flight::settle(WaitingList& ready) {
  if (depends_on_undecided()) return;
  if (status_.ok()) finish();
  if (!status_.ok()) signal_for_the_failed();
  staging_->give(std::exchange(staged_, {}));
  kept_.clear();
  if (defences_.handlers_end_submissions) timeline_->end(value_, status_, ready);
}

// What came before on this queue counts as well: its faults are this one's sources. True: another thread may
// settle it by now.
bool Flight::depends_on_undecided() {
  const Ref<Flight> self = shared_from_this();
  if (awaits_event()) return true;
  for (; decided_ < waits_.size(); ++decided_) {
    const Wait& wait = waits_[decided_];
    if (wait.timeline->decides_later(wait.value, self, place_)) return true;
    const Status outcome = wait.timeline->outcome(wait.value);
    if (outcome.ok() || !status_.ok() || refused_) continue;
    status_ = or_exhausted("a submission that waited for one that failed", [&] {
      return Status::device_lost("submission ", value_, " waited for one that failed: ", outcome.message());
    });
  }
  return timeline_->decides_later(value_ - 1, self, place_);
}

bool Flight::awaits_event() {
  for (const auto& [event, value] : events_) {
    if ([event.get() signaledValue] >= value) continue;
    const Ref<Flight> self = shared_from_this();
    [event.get() notifyListener:listener_.get()
                        atValue:value
                          block:^(id<MTLSharedEvent>, uint64_t) {
                            self->wait_without_commands();
                          }];
    return true;
  }
  return false;
}

void Flight::signal_for_the_failed() {
  for (const auto& [event, value] : signals_) {
    if ([event.get() signaledValue] < value) [event.get() setSignaledValue:value];
  }
}

void Flight::finish() {
  for (const CheckedRun& run : runs_) finish_run(run);
}

void Flight::finish_run(const CheckedRun& checked) {
  const Ref<device::RowFaults>& faults = checked.run->row_faults;
  if (faults == nullptr) return;
  for (const Ref<const device::RowFaults>& source : checked.run->sources) {
    if (const Status fault = source->whole(); !fault.ok()) faults->record_whole(fault);
  }
  // Where there is no memory for a row's fault, the run has one as a whole.
  const Status recorded = or_exhausted("what the data of a run shows", [&] {
    record_words(checked, *faults);
    return Status();
  });
  if (!recorded.ok()) faults->record_whole(recorded);
}

void Flight::record_words(const CheckedRun& checked, device::RowFaults& faults) {
  for (size_t i = 0; i < checked.words.size(); ++i) {
    const Check& check = checked.program->check(i);
    const auto* flags = static_cast<const int32_t*>([checked.words[i] contents]);
    for (int64_t flag = 0; flag < check.flags; ++flag) {
      if (flags[flag] == 0) continue;
      if (check.per_row && faults.rows() > 0) {
        faults.record(flag * faults.rows() / check.flags, Status::invalid(check.mistake));
      } else {
        faults.record_whole(Status::invalid(check.mistake));
      }
    }
  }
}

}  // namespace heddle::metal
