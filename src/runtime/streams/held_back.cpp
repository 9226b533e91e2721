// What a stream holds back, so that several runs share a submission (stream.h, Held back).
#include "base/fork.h"
#include "device/program.h"
#include "runtime/streams/stream.h"

namespace heddle::runtime {

using device::CommandList;

namespace {

// What a driver would refuse is refused alone, and to whom it belongs.
bool are_operands_right(const CommandList& list) {
  for (const device::Command& command : list) {
    const auto* run = std::get_if<device::Run>(&command);
    if (run != nullptr && !run->program->check_operands(*run).ok()) return false;
  }
  return true;
}

bool waits(const CommandList& list) {
  for (const device::Command& command : list) {
    if (std::holds_alternative<device::Wait>(command)) return true;
  }
  return false;
}

}  // namespace

void Stream::share_submissions(Ref<Bell> bell) {
  if (device_->traits().runs_together < 2 || foreign_.has_value()) return;
  timeline()->held_by(std::weak_ptr<Holder>(shared_from_this()), std::move(bell));
  shares_ = true;
}

// With the Turn, so that another thread has submitted what it holds back or is just sending. A thread that is
// asked to end its wait (ask_while_waiting) gets none, and waits again.
void* Stream::native() {
  if (foreign_.has_value()) return *foreign_;
  void* const native = queue_->native();
  if (native == nullptr || !shares_) return native;
  for (;;) {
    const Result<Turn> mine = turn();
    if (!mine.ok()) continue;
    exposed_ = true;
    static_cast<void>(send_held());
    return native;
  }
}

bool Stream::may_hold_back(const CommandList& list) const {
  return shares_ && !exposed_ && !waits(list) && are_operands_right(list);
}

Result<uint64_t> Stream::hold_back(CommandList list, Submission extras) {
  drop_finished();
  list.share();
  Record& record = add_record(std::move(list), std::move(extras), device_->traits().runs_together);
  timeline()->hold(record.value);
  static_cast<void>(take_value());
  touched_.store_relaxed(clock_->now().time_since_epoch().count());
  held_ = &record;
  if (Status marked = mark(record); !marked.ok()) {
    static_cast<void>(send_held());
    return marked;
  }
  return record.value;
}

std::optional<Result<uint64_t>> Stream::try_join(CommandList& list, Submission& extras) {
  if (held_ == nullptr) return std::nullopt;
  std::vector<device::Point> others;
  list.for_each_buffer(
      [&](device::Buffer& buffer, bool write) { buffer.collect_waits(write, timeline().get(), others); });
  if (!others.empty() || !check_usable().ok() || !may_hold_back(list)) {
    static_cast<void>(send_held());
    return std::nullopt;
  }
  const uint64_t value = held_->value;
  held_->list.reserve(held_->list.size() + list.size());
  mark_buffers(list, value);  // the last that may throw
  for (device::Command& command : list) held_->list.add(std::move(command));
  held_->joined.push_back(std::move(extras));
  touched_.store_relaxed(clock_->now().time_since_epoch().count());
  const size_t runs = 1 + held_->joined.size();
  if (runs == static_cast<size_t>(device_->traits().runs_together)) {
    if (Status status = send_held(); !status.ok()) return Result<uint64_t>(std::move(status));
  }
  return Result<uint64_t>(value);
}

// Of a stream that has failed nothing reaches the value any more, and the timeline says why.
Status Stream::send_held() {
  if (held_ == nullptr) return {};
  static_cast<void>(asked_.exchange_acq_rel(0));
  seam::did("stream.forget_asked");
  timeline()->hold(0);
  Record& record = *std::exchange(held_, nullptr);
  if (!failed()) return start(record);
  set_accepted(record);
  drop_finished();
  return timeline()->failure();
}

void Stream::send() {
  if (fork_generation() != generation_) return;
  static_cast<void>(asked_.exchange_acq_rel(1));
  seam::did("stream.ask");
  if (std::optional<Turn> turn = try_turn()) static_cast<void>(turn->send());
}

bool Stream::send_if_older(TimePoint than) {
  if (!timeline()->holds_back()) return false;
  if (touched_.load_relaxed() > than.time_since_epoch().count()) return true;
  std::optional<Turn> turn = try_turn();
  if (!turn.has_value()) return true;
  if (touched_.load_relaxed() > than.time_since_epoch().count()) return held_ != nullptr;
  static_cast<void>(turn->send());
  return false;
}

void Stream::close() {
  closed_.store_relaxed(true);
  if (shares_) send();
}

}  // namespace heddle::runtime
