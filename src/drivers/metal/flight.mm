#include "drivers/metal/flight.h"

#include "drivers/metal/failure.h"
#include "drivers/metal/program.h"

namespace heddle::metal {

Result<id<MTLBuffer>> Flight::stage(uint64_t bytes) {
  HEDDLE_TRY_ASSIGN(Staged buffer, staging_->take(bytes));
  staged_.push_back(std::move(buffer));
  return staged_.back().get();
}

void Flight::add_earlier(id<MTLCommandBuffer> part) {
  for (const auto& known : earlier_) {
    if (known.get() == part) return;
  }
  earlier_.push_back(Owned<id<MTLCommandBuffer>>::retain(part));
  timeline_->split(value_);
}

void Flight::keep_nothing_but_waits() {
  refused_ = true;
  runs_.clear();
  signals_.clear();
  waits_.clear();
}

void Flight::refused() {
  staging_->give(std::exchange(staged_, {}));
  waited_for();
}

void Flight::waited_for() {
  std::vector<Ref<Flight>> ready;
  timeline_->end(value_, {}, ready);
  for (Ref<Flight>& each : ready) settle_all(std::move(each));
}

void Flight::completed(id<MTLCommandBuffer> last) {
  const std::string what = text("submission ", value_, " on the Metal device");
  const auto look_at = [&](id<MTLCommandBuffer> part) {
    if (status_.ok() && [part status] == MTLCommandBufferStatusError) {
      status_ = command_buffer_failure(what, [part error]);
      if (is_removal([part error])) loss_->record(status_);
    }
  };
  if (defences_.errors_fail_timeline) {
    for (const auto& part : earlier_) look_at(part.get());
    look_at(last);
  }
  settle_all(shared_from_this());
}

// Without recursion: a chain of submissions may be as long as all queues hold.
void Flight::settle_all(Ref<Flight> first) {
  std::vector<Ref<Flight>> ready;
  ready.push_back(std::move(first));
  while (!ready.empty()) {
    const Ref<Flight> flight = std::move(ready.back());
    ready.pop_back();
    flight->settle(ready);
  }
}

void Flight::settle(std::vector<Ref<Flight>>& ready) {
  if (depends_on_undecided()) return;
  if (status_.ok()) finish();
  if (!status_.ok()) signal_for_the_failed();
  staging_->give(std::exchange(staged_, {}));
  kept_.clear();
  if (defences_.handlers_end_submissions) timeline_->end(value_, status_, ready);
}

// What came before on this queue counts as well: its faults are this one's sources.
bool Flight::depends_on_undecided() {
  const Ref<Flight> self = shared_from_this();
  for (; decided_ < waits_.size(); ++decided_) {
    const Wait& wait = waits_[decided_];
    if (wait.timeline->decides_later(wait.value, self)) return true;
    const Status outcome = wait.timeline->outcome(wait.value);
    if (!outcome.ok() && status_.ok() && !refused_) {
      status_ =
          Status::device_lost("submission ", value_, " waited for one that failed: ", outcome.message());
    }
  }
  return timeline_->decides_later(value_ - 1, self);
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
  for (size_t i = 0; i < checked.words.size(); ++i) {
    const Check& check = checked.program->check(i);
    const auto* flags = static_cast<const int32_t*>([checked.words[i] contents]);
    for (int64_t flag = 0; flag < check.flags; ++flag) {
      if (flags[flag] == 0) continue;
      if (check.per_row && faults->rows() > 0) {
        faults->record(flag * faults->rows() / check.flags, Status::invalid(check.mistake));
      } else {
        faults->record_whole(Status::invalid(check.mistake));
      }
    }
  }
}

}  // namespace heddle::metal
