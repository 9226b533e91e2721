// device.cpp: Device and Exclusive.
#include <algorithm>

#include "api/device_name.h"
#include "api/internals.h"
#include "api/process_devices.h"

namespace heddle {

namespace {

std::string or_default(std::string_view name) {
  return name.empty() ? process_devices::default_name() : std::string(name);
}

std::vector<DeviceFact> facts_of(const std::vector<device::Fact>& facts) {
  std::vector<DeviceFact> out;
  for (const device::Fact& fact : facts) out.push_back({fact.name, fact.value});
  return out;
}

}  // namespace

Device::Device() : Device(std::string_view()) {}
Device::Device(std::string_view name) : rep_(process_devices::get(or_default(name)).rep_) {}
Device Device::open(std::string_view name, const DeviceOptions& options) {
  return process_devices::open(or_default(name), options);
}
void Device::configure(std::string_view name, const DeviceOptions& options) {
  process_devices::configure(or_default(name), options);
}
std::vector<Device> Device::all(std::string_view kind) {
  std::vector<Device> devices;
  for (int i = 0; i < process_devices::count(kind); ++i)
    devices.emplace_back(DeviceName{std::string(kind), i}.to_string());
  return devices;
}
std::vector<std::string> Device::names() { return process_devices::names(); }
std::vector<DeviceFact> Device::missing() { return process_devices::missing(); }

std::string Device::name() const { return rep_->name; }
std::string Device::description() const { return rep_->runtime->device().traits().description; }
std::vector<DeviceFact> Device::facts() const { return facts_of(rep_->runtime->device().traits().facts); }
std::vector<DeviceFact> Device::defences() const {
  return facts_of(rep_->runtime->device().traits().defences);
}
bool Device::unified_memory() const { return rep_->runtime->device().traits().unified_memory; }
int Device::threads() const { return rep_->threads; }
int Device::in_flight() const { return rep_->runtime->governor().limit(); }
int Device::slices() const { return rep_->runtime->time_slices().width(); }
int Device::streams() const { return rep_->runtime->options().streams; }

void Device::synchronize(Timeout timeout) const { check(rep_->runtime->synchronize(to_deadline(timeout))); }
void Device::close(Timeout timeout) const { rep_->runtime->close(to_deadline(timeout)); }

void Device::empty_cache() const {
  check(rep_->runtime->usable());
  rep_->runtime->allocator().empty_cache();
}

void Device::set_memory_fraction(double fraction) const {
  check(rep_->runtime->usable());
  check(rep_->runtime->allocator().set_memory_fraction(fraction));
}

void Device::reset_peak_memory() const { rep_->runtime->allocator().reset_peaks(); }

void Device::on_memory_pressure(std::function<void(uint64_t)> callback) const {
  if (!callback) throw Error(ErrorCode::invalid, "the memory pressure callback is empty");
  check(rep_->runtime->usable());
  rep_->runtime->allocator().on_pressure(std::move(callback));
}

DeviceStats Device::stats() const {
  check(rep_->runtime->ours());
  const runtime::Runtime::Stats s = rep_->runtime->stats();
  DeviceStats out{};
  out.memory = {s.memory.allocated - std::min(s.slot_bytes, s.memory.allocated),  // read one after the other
                s.memory.reserved,
                s.memory.peak_allocated,
                s.memory.peak_reserved,
                s.memory.limit,
                rep_->runtime->device().traits().memory_bytes,
                s.memory.hits,
                s.memory.misses,
                s.memory.driver_frees,
                s.slot_bytes,
                s.memory.staging.reserved};
  out.calls = s.governor.entered;
  out.compiles = s.executables.makes;
  out.cache_hits = s.executables.hits;
  out.evictions = s.executables.evictions;
  out.cached_bytes = s.executables.bytes;
  out.waits_for_lane = s.governor.parked;
  out.longest_wait_for_lane = s.governor.longest_wait;
  out.streams_leased = s.streams.leased;
  out.streams_leased_max = s.streams.most_leased;
  out.streams_shared = s.streams.joined;
  return out;
}

struct Exclusive::Rep {
  Device device;
  runtime::Exclusive hold;
};

Exclusive::Exclusive(const Device& device, Timeout timeout) {
  runtime::Runtime& runtime = Internals::runtime(device);
  check(runtime.usable());
  rep_ = std::make_unique<Rep>(Rep{device, take(runtime.governor().exclusive(to_deadline(timeout)))});
}
Exclusive::~Exclusive() = default;

}  // namespace heddle
