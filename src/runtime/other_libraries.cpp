// Memory, streams and events that another library shares with a runtime.
#include "base/fork.h"
#include "runtime/runtime.h"

namespace heddle::runtime {

using device::CommandList;
using device::View;

namespace {

// Memory that is another library's goes back to it once nothing of ours uses it.
class Returner final : public device::Recycler {
 public:
  void recycle(std::unique_ptr<device::Memory> memory, std::vector<device::Point> uses) noexcept override {
    if (fork_generation() != generation_) {
      static_cast<void>(memory.release());  // the parent's
      return;
    }
    for (const device::Point& point : uses)
      static_cast<void>(point.timeline->wait(point.value, Deadline::never()));
    memory.reset();
  }

 private:
  const uint32_t generation_ = fork_generation();
};

}  // namespace

Result<Ref<device::Buffer>> Runtime::lend(device::ForeignMemory memory, void* stream) {
  HEDDLE_TRY(usable());
  const uint64_t bytes = memory.bytes;
  HEDDLE_TRY_ASSIGN(auto imported, device_->import_memory(memory, NoLocksHeld{}));
  auto buffer = std::make_shared<device::Buffer>(std::move(imported), bytes, std::make_shared<Returner>());
  if (stream != nullptr) {
    HEDDLE_TRY_ASSIGN(device::Point written, device_->import_stream(stream, NoLocksHeld{}));
    buffer->mark_write(written);
  }
  return buffer;
}

Status Runtime::hand_to(void* stream, const View& view) {
  HEDDLE_TRY(usable());
  std::vector<device::Point> uses;  // reads too: the other library may write
  if (view.buffer != nullptr) view.buffer->collect_waits(true, nullptr, uses);
  for (const device::Point& point : uses) {
    point.timeline->want(point.value);
    HEDDLE_TRY(device_->hold_stream(stream, point, NoLocksHeld{}));
  }
  return {};
}

Status Runtime::released_by(void* stream, const View& view) {
  HEDDLE_TRY(usable());
  HEDDLE_TRY_ASSIGN(device::Point over, device_->import_stream(stream, NoLocksHeld{}));
  if (view.buffer == nullptr) return {};
  view.buffer->mark_write_beside(over);  // the other library may have written
  return {};
}

Result<Ref<Stream>> Runtime::follow(void* stream) {
  HEDDLE_TRY(usable());
  HEDDLE_TRY(device_->import_stream(stream, NoLocksHeld{}).status());  // or no call on it would ever work
  return parts_->roster->make(StreamId::kForeign, stream);
}

Result<Event> Runtime::import_event(const device::ForeignEvent& event) {
  HEDDLE_TRY(usable());
  HEDDLE_TRY_ASSIGN(device::Point point, device_->import_event(event, NoLocksHeld{}));
  return Event(std::move(point));
}

Status Runtime::signal(Stream& stream, device::ForeignEvent event, Deadline deadline) {
  if (device_->traits().events.empty()) {
    return Status::unsupported("device '", device_->traits().name,
                               "' has no events that others could wait for; wait for the stream on the host");
  }
  CommandList list;
  list.signal(std::move(event));
  return move_data(stream, std::move(list), deadline, {});
}

}  // namespace heddle::runtime
