// streams.cpp: Stream, Event, guards, and the thread's lease.
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "api/internals.h"

namespace heddle {
namespace {

using Lease = std::shared_ptr<runtime::StreamLease>;

// What a thread has of Heddle: the streams its guards set, and its lease per device. Its end returns the
// leases. A lease does not keep its device: a thread may outlive the device's other holders.
struct ThreadStreams {
  struct Leased {
    std::weak_ptr<Internals::DeviceRep> device;
    Lease lease;
  };
  std::vector<Stream> guards;
  std::vector<Leased> leases;
};

ThreadStreams& mine() {
  thread_local ThreadStreams streams;
  return streams;
}

bool is_main_thread() {
#if defined(__APPLE__)
  thread_local const bool main = pthread_main_np() != 0;
#else
  thread_local const bool main = getpid() == static_cast<pid_t>(syscall(SYS_gettid));
#endif
  return main;
}

runtime::StreamPool& pool_of(const Device& device) {
  runtime::Runtime& runtime = Internals::runtime(device);
  check(runtime.usable());
  return runtime.streams();
}

Lease hold(runtime::StreamLease lease) { return std::make_shared<runtime::StreamLease>(std::move(lease)); }

Stream on_lease(const Device& device, Lease lease) {
  Ref<runtime::Stream> stream = lease->stream();
  return Internals::make_stream(std::make_shared<Internals::StreamRep>(
      Internals::StreamRep{device, std::move(stream), std::move(lease)}));
}

}  // namespace

Stream::Stream(const Device& device) : Stream(on_lease(device, hold(take(pool_of(device).lease())))) {}
Stream Stream::from_native(void* handle, const Device& device) {
  Ref<runtime::Stream> stream = take(Internals::runtime(device).follow(handle));
  return Stream(std::make_shared<Rep>(Rep{device, std::move(stream), nullptr}));
}
int Stream::id() const { return rep_->stream->id().index; }
Device Stream::device() const { return rep_->device; }
void* Stream::native_handle() const { return rep_->stream->native(); }
Event Stream::record() const { return Internals::make_event(rep_->stream->record(runtime::Timed::yes)); }
bool Stream::query() const { return rep_->stream->query(); }
void Stream::synchronize(Timeout timeout) const {
  runtime::Runtime& runtime = Internals::runtime(rep_->device);
  check(runtime.usable());
  runtime.time_slices().rest();
  check(rep_->stream->synchronize(to_deadline(timeout)));
}

void Stream::wait(const Event& event) const {
  const runtime::Event* recorded = Internals::event(event);
  check(Internals::runtime(rep_->device)
            .wait(*rep_->stream, recorded == nullptr ? runtime::Event() : *recorded));
}

void Stream::copy(const Tensor& from, const Tensor& to) const {
  if (!Internals::writable(to))
    throw Error(ErrorCode::invalid, "a copy to a tensor that borrows memory it may only read");
  const device::View &source = Internals::view(from), &target = Internals::view(to);
  const Tensor both[] = {from, to};
  check(Internals::runtime(rep_->device)
            .copy(*rep_->stream, source, target, Deadline::never(), Internals::keep_all(rep_->device, both)));
}

Event Internals::make_event(runtime::Event event) {
  Event e;
  e.rep_ = std::make_shared<Event::Rep>(Event::Rep{std::move(event)});
  return e;
}

bool Event::query() const { return rep_ == nullptr || rep_->event.query(); }
void Event::wait(Timeout timeout) const {
  if (rep_ != nullptr) check(rep_->event.wait(to_deadline(timeout)));
}
double Event::elapsed_ms(const Event& later) const {
  if (rep_ == nullptr || later.rep_ == nullptr) {
    throw Error(ErrorCode::invalid, "elapsed time needs two recorded events; one was never recorded");
  }
  const Duration elapsed = take(runtime::Event::elapsed(rep_->event, later.rep_->event));
  return std::chrono::duration<double, std::milli>(elapsed).count();
}

std::optional<Stream> guarded_stream(const Device& device) {
  const std::vector<Stream>& guards = mine().guards;
  for (auto it = guards.rbegin(); it != guards.rend(); ++it) {
    if (Internals::is_on(*it, device)) return *it;
  }
  return std::nullopt;
}

Stream default_stream(const Device& device) {
  Ref<runtime::Stream> stream = take(pool_of(device).default_stream());
  return Internals::make_stream(
      std::make_shared<Internals::StreamRep>(Internals::StreamRep{device, std::move(stream), nullptr}));
}

Stream current_stream(const Device& device) {
  if (auto stream = guarded_stream(device)) return *stream;
  if (is_main_thread()) return default_stream(device);
  auto& leases = mine().leases;
  std::erase_if(leases,
                [](const ThreadStreams::Leased& l) { return l.device.expired() || (*l.lease)->failed(); });
  for (const ThreadStreams::Leased& l : leases) {
    if (Internals::is(l.device, device)) return on_lease(device, l.lease);
  }
  leases.push_back({Internals::weak(device), hold(take(pool_of(device).lease()))});
  return on_lease(device, leases.back().lease);
}

void release_current_thread_slot(const Device& device) {
  std::erase_if(mine().leases,
                [&](const ThreadStreams::Leased& l) { return Internals::is(l.device, device); });
}

StreamGuard::StreamGuard(Stream stream) { mine().guards.push_back(std::move(stream)); }
StreamGuard::~StreamGuard() { mine().guards.pop_back(); }

Stream StreamPool::acquire(Timeout timeout) const {
  runtime::StreamPool& pool = pool_of(device_);
  return on_lease(device_, hold(take(timeout ? pool.lease(Deadline::in(*timeout)) : pool.lease())));
}

std::optional<Stream> StreamPool::try_acquire() const {
  auto lease = take(pool_of(device_).try_lease());
  if (!lease) return std::nullopt;
  return on_lease(device_, hold(*std::move(lease)));
}

void synchronize(const Device& device) { device.synchronize(); }

}  // namespace heddle
