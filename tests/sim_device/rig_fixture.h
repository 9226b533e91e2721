// rig_fixture.h: a simulated device on the host's, with what tests of its rules need.
//
//   What       Queues and buffers without a runtime in between, so that a test can break the rules that the
//              runtime keeps.
//   Threads    As device.h says.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "device/plain_source_fixture.h"
#include "device/row_faults.h"
#include "drivers/host/host_device.h"
#include "drivers/sim/event.h"
#include "drivers/sim/sim_device.h"
#include "two_products_fixture.h"

namespace heddle::sim::test {

using device::CommandList;
using device::MemoryKind;

// One host device for all rigs: its helpers need not be started anew for each seed.
inline Ref<device::Device> host_device() {
  static const Ref<device::Device> host = *host::make_host_device({.threads = 1});
  return host;
}

struct Rig {
  explicit Rig(SimOptions options = {}) : device(*make_sim_device(host_device(), options)) {}

  std::unique_ptr<device::Queue> queue() { return *device->make_queue(NoLocksHeld{}); }
  View vector(int64_t elements, MemoryKind kind = MemoryKind::device, DType dtype = DType::kF32) {
    const auto bytes = static_cast<uint64_t>(elements * ir::size_of(dtype));
    return View::contiguous(*device::plain_source(*device)->allocate(bytes, kind), dtype, {elements});
  }
  // The only violation so far.
  bool found_only(Violation what) const {
    const auto found = device->violations();
    for (const Found& each : found) INFO(to_string(each));
    return found.size() == 1 && found[0].what == what;
  }
  bool found_nothing() const {
    for (const Found& each : device->violations()) MESSAGE(to_string(each));
    return device->violations().empty();
  }

  const Ref<SimDevice> device;
};

inline SimOptions with_seed(uint64_t seed, bool fails_on_violation = true) {
  SimOptions options;
  options.seed = seed;
  options.fails_on_violation = fails_on_violation;
  return options;
}

inline Status wait(device::Queue& queue, uint64_t value) {
  return queue.timeline()->wait(value, Deadline::never());
}
inline CommandList filling(const View& view, double value) {
  CommandList list;
  list.fill(view, value);
  return list;
}
inline CommandList copying(const View& from, const View& to) {
  CommandList list;
  list.copy(from, to);
  return list;
}

inline Ref<const device::Module> load_two_products(device::Device& device) {
  return *device.load(two_products(), {}, device::plain_source(device), NoLocksHeld{});
}

}  // namespace heddle::sim::test
