#include "drivers/cuda/timeline.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "base/no_memory.h"
#include "base/yield.h"
#include "device/row_faults.h"
#include "drivers/cuda/program.h"

namespace heddle::cuda {
namespace {

constexpr uint64_t kLeastFlags = 4096;  // bytes

}  // namespace

Result<Ref<CudaTimeline>> CudaTimeline::make(Ref<const OpenDevice> device, StreamHandle stream,
                                             Ref<Watcher> watcher, device::Completion completion) {
  HEDDLE_TRY_ASSIGN(Ref<Pinned> word, Pinned::make(device, sizeof(Atomic<uint64_t>)));
  return std::make_shared<CudaTimeline>(std::move(device), stream, std::move(watcher), std::move(word),
                                        completion);
}

CudaTimeline::CudaTimeline(Ref<const OpenDevice> device, StreamHandle stream, Ref<Watcher> watcher,
                           Ref<Pinned> word, device::Completion completion)
    : Watched(std::move(watcher)),
      device_(std::move(device)),
      pinned_(std::move(word)),
      word_(*new (pinned_->host()) Atomic<uint64_t>(0)),
      completion_(completion),
      state_(State{{}, {}, std::list<Flight>(1), 0, UINT64_MAX, {}, {}}),
      stream_(stream) {}

Status CudaTimeline::broken() const {
  HEDDLE_TRY(device_->lost.status());
  return state_.lock()->cause;
}

bool CudaTimeline::begin(Flight flight) {
  auto state = state_.lock();
  const bool is_over = failed() || !device_->lost.status().ok();
  if (is_over) flight.runs.clear();  // nobody keeps the submission's list for it
  if (!flight.spoiled.ok() && state->cause.ok()) {
    state->cause = flight.spoiled;
    state->broken_from = flight.value;
  }
  state->idle.front() = std::move(flight);
  auto& its = is_over ? state->over : state->in_flight;
  its.splice(its.end(), state->idle, state->idle.begin());
  return !is_over;
}

bool CudaTimeline::has_room() {
  std::list<Flight> over;
  {
    auto state = state_.lock();
    over.swap(state->over);
    if (over.empty()) return !state->idle.empty();
  }
  std::list<Ref<Pinned>> flags;
  for (Flight& flight : over) {
    flags.splice(flags.end(), flight.flags);
    flight = Flight();
  }
  auto state = state_.lock();
  state->idle.splice(state->idle.end(), over);
  state->idle_flags.splice(state->idle_flags.end(), flags);
  return true;
}

void CudaTimeline::make_room() {
  while (!has_room()) {
    try {
      std::list<Flight> more(1);
      auto state = state_.lock();
      state->idle.splice(state->idle.end(), more);
    } catch (const std::bad_alloc&) {
      give_way();
      static_cast<void>(or_exhausted("a question", [&] { return ask(), Status(); }));
      settle(*state_.lock());  // the device may be lost, and is not asked then
    }
  }
}

void CudaTimeline::enqueue_done(uint64_t value) {
  state_.lock()->enqueued = value;
  state_.notify_all();
}

void CudaTimeline::write_failed(uint64_t value, const Status& why) {
  // No lock held: it may take long. The queue, which submits, lives.
  const StreamHandle stream = *stream_.lock();
  static_cast<void>(device_->check_work(device_->api.stream_synchronize(stream), "a queue that broke"));
  if (!device_->lost.status().ok()) return;  // what is in flight may be anywhere, and the timeline fails
  Status cause = or_exhausted("the end of a submission", [&] {
    return Status::device_lost("the end of a submission could not be enqueued: ", why.message());
  });
  auto state = state_.lock();
  if (state->cause.ok()) {
    state->cause = std::move(cause);
    state->broken_from = value;
  }
  word_.store_release(value);  // pairs with look()
}

Status CudaTimeline::enqueued(uint64_t value) {
  constexpr Duration kLook = std::chrono::milliseconds(10);  // nobody tells of a lost device
  auto state = state_.lock();
  const auto decided = [&] { return state->enqueued >= value || failed() || !device_->lost.status().ok(); };
  while (!state.wait_until(Deadline::in(kLook), decided)) {
  }
  if (state->broken_from <= value) return state->cause;
  return device_->lost.status();
}

void CudaTimeline::look() {
  if (word_.load_acquire() <= reached() && device_->lost.status().ok()) [[likely]]
    return;
  // Whoever has it sees what this one would, or this one looks again before it sleeps.
  if (auto state = state_.try_lock()) settle(**state);
}

Result<std::list<Ref<Pinned>>> CudaTimeline::take_flags(uint64_t bytes) {
  std::list<Ref<Pinned>> flags;
  {
    auto state = state_.lock();
    auto& idle = state->idle_flags;
    // The last that came back: a graph of the run that had it knows its address (graphs.h).
    const auto found =
        std::find_if(idle.rbegin(), idle.rend(), [&](const auto& each) { return each->bytes() >= bytes; });
    if (found != idle.rend()) flags.splice(flags.end(), idle, std::next(found).base());
  }
  if (flags.empty()) {
    HEDDLE_TRY_ASSIGN(Ref<Pinned> made, Pinned::make(device_, std::bit_ceil(std::max(bytes, kLeastFlags))));
    flags.push_back(std::move(made));
  }
  std::memset(flags.front()->host(), 0, bytes);
  return flags;
}

void CudaTimeline::settle(State& state) {
  const uint64_t over = word_.load_acquire();
  uint64_t last = 0;
  while (!state.in_flight.empty() && state.in_flight.front().value <= over) {
    Flight& flight = state.in_flight.front();
    for (const CheckedRun& run : flight.runs) finish(run);
    flight.runs.clear();  // the submission's list is dropped from now on
    if (flight.value < state.broken_from) last = flight.value;
    state.over.splice(state.over.end(), state.in_flight, state.in_flight.begin());
  }
  if (last != 0) advance(last, completion_);
  Status cause = state.in_flight.empty() ? state.cause : Status();
  if (cause.ok()) cause = device_->lost.status();
  if (cause.ok()) return;
  fail(std::move(cause), completion_);
  for (Flight& flight : state.in_flight) flight.runs.clear();
  state.over.splice(state.over.end(), state.in_flight);
}

void CudaTimeline::finish(const CheckedRun& checked) {
  const Ref<device::RowFaults>& faults = checked.run->row_faults;
  if (faults == nullptr) return;
  for (const Ref<const device::RowFaults>& source : checked.run->sources) {
    if (const Status fault = source->whole(); !fault.ok()) faults->record_whole(fault);
  }
  // Where there is no memory for a row's fault, the run has one as a whole.
  const Status recorded = or_exhausted("what the data of a run shows", [&] {
    record_flags(checked, *faults);
    return Status();
  });
  if (!recorded.ok()) faults->record_whole(recorded);
}

void CudaTimeline::record_flags(const CheckedRun& checked, device::RowFaults& faults) {
  const uint32_t* flags = checked.flags;
  for (const Check& check : checked.program->lowered().checks) {
    for (uint64_t flag = 0; flag < check.flags; ++flag) {
      if (flags[flag] == 0) continue;
      if (check.per_row && faults.rows() > 0) {
        const auto row = static_cast<int64_t>(flag * static_cast<uint64_t>(faults.rows()) / check.flags);
        faults.record(row, Status::invalid(check.mistake));
      } else {
        faults.record_whole(Status::invalid(check.mistake));
      }
    }
    flags += check.flags;
  }
}

void CudaTimeline::ask() {
  if (state_.lock()->in_flight.empty()) return;
  {
    const auto stream = stream_.lock();
    if (*stream == nullptr) return;
    const Current current(*device_);
    const Code code = device_->api.stream_query(*stream);
    if (code != kNotReady) static_cast<void>(device_->check_work(code, "work in flight"));
  }
  settle(*state_.lock());
}

Status CudaTimeline::hold_back(StreamHandle later) const {
  const auto stream = stream_.lock();
  if (*stream == nullptr) return {};  // all of it is over
  const DriverApi& api = device_->api;
  const Current current(*device_);
  EventHandle event = nullptr;
  HEDDLE_TRY(device_->check(api.event_create(&event, kEventWithoutTiming), "cuEventCreate"));
  Status status = device_->check(api.event_record(event, *stream), "cuEventRecord");
  if (status.ok()) status = device_->check(api.stream_wait(later, event, 0), "cuStreamWaitEvent");
  api.event_destroy(event);  // CUDA keeps it until the wait is over
  return status;
}

void CudaTimeline::close() {
  const bool works = !state_.lock()->in_flight.empty();
  StreamHandle stream = nullptr;
  std::swap(stream, *stream_.lock());  // nobody else asks it any more
  if (works && device_->lost.status().ok()) {
    const Code code = device_->api.stream_synchronize(stream);  // no lock held: it may take long
    static_cast<void>(device_->check_work(code, "the last work of a queue"));
  }
  std::list<Flight> over;
  auto state = state_.lock();
  settle(*state);
  over.swap(state->over);
}

}  // namespace heddle::cuda
