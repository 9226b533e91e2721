#include "runtime/streams/roster.h"

#include <algorithm>

#include "runtime/registry.h"

namespace heddle::runtime {

Roster::Roster(Ref<device::Device> device, const Clock& clock)
    : device_(std::move(device)), clock_(&clock), bell_(std::make_shared<Bell>()) {}

Result<Ref<Stream>> Roster::make(int index, std::optional<void*> foreign) {
  HEDDLE_TRY(device_->lost());
  HEDDLE_TRY_ASSIGN(auto queue, device_->make_queue(NoLocksHeld{}));
  if (!device_->traits().synchronous) queue->timeline()->attach(bell_);
  const StreamId id{index, registry::next_stream_serial()};
  auto stream = std::make_shared<Stream>(device_, std::move(queue), id, *clock_, foreign);
  stream->share_submissions(bell_);
  auto members = members_.lock();
  if (members->closed) return Status::unavailable("the runtime is closed; it makes no more streams");
  std::erase_if(members->streams, [](const auto& each) { return each.expired(); });
  members->streams.push_back(stream);
  return stream;
}

std::vector<Ref<Stream>> Roster::living() const {
  std::vector<Ref<Stream>> living;
  const auto members = members_.lock();
  for (const auto& each : members->streams) {
    if (Ref<Stream> stream = each.lock()) living.push_back(std::move(stream));
  }
  return living;
}

// What it holds back has a Permit, for which nobody will ask it again.
void Roster::forget(const Ref<Stream>& stream) {
  std::erase_if(members_.lock()->streams, [&stream](const auto& each) {
    return !each.owner_before(stream) && !stream.owner_before(each);
  });
  if (stream->timeline()->holds_back()) stream->send();
  stream->drop_finished();
}

void Roster::send() {
  for (const Ref<Stream>& stream : living()) {
    if (stream->timeline()->holds_back()) stream->send();
  }
}

// By who has neither a Turn nor a Permit, and needs memory. Runs that share submissions keep more of it than
// there are Permits, those that are under way as well.
void Roster::give_up() {
  if (device_->traits().runs_together < 2) return;
  const Deadline deadline = Deadline::in(std::chrono::seconds(1));
  std::vector<Ref<Stream>> sent;
  for (const Ref<Stream>& stream : living()) {
    if (stream->in_flight() == 0) continue;
    if (stream->timeline()->holds_back()) stream->send();
    sent.push_back(stream);
  }
  for (const Ref<Stream>& stream : sent) {
    static_cast<void>(stream->synchronize(deadline));  // in vain: there is less to give up
    stream->drop_finished();
  }
}

bool Roster::send_older(TimePoint than) const {
  bool some = false;
  for (const Ref<Stream>& stream : living()) some = stream->send_if_older(than) || some;
  return some;
}

// Sent first, so that they run beside each other.
Status Roster::synchronize(Deadline deadline) {
  send();
  Status first;
  for (const Ref<Stream>& stream : living()) {
    const Status status = stream->synchronize(deadline);
    if (first.ok() && !status.ok()) first = status.with_context(to_string(stream->id()));
  }
  return first;
}

size_t Roster::drop_finished() const {
  size_t left = 0;
  for (const Ref<Stream>& stream : living()) left += stream->drop_finished();
  return left;
}

void Roster::close() {
  members_.lock()->closed = true;
  for (const Ref<Stream>& stream : living()) stream->close();
}

}  // namespace heddle::runtime
