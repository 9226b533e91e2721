// world_fixture.h: a simulated device and a runtime on it, whose threads, time and choices are a
// simulation's.
//
//   What       World makes a host device without helpers, the device that simulates on it, and a runtime. The
//              simulation's seed chooses what kind of device it is, and decides all that the device does.
//   Threads    Made by the simulation's body, used by its threads.
//   Lifetime   Of one simulation: nothing is shared with the next one.
#pragma once

#include <string>

#include "base/simulation_fixture.h"
#include "base/thread.h"
#include "drivers/host/host_device.h"
#include "drivers/sim/sim_device.h"
#include "runtime/runtime.h"
#include "tests/sim_device/two_products_fixture.h"

namespace heddle::simulated {

using device::View;
using heddle::test::holds_for_seeds;
using ir::DType;
using ir::Extents;
using sim::test::Rows;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// What a process makes once is made before its first simulation: its making has seams, and in a simulation
// another thread would wait for it where no seam is. The first seed would take those steps, and no other.
inline const bool process_is_warm = [] {
  const auto runtime = runtime::Runtime::make(*sim::make_sim_device(*host::make_host_device({.threads = 1})));
  return runtime.ok() && (*runtime)->load(sim::test::two_products()).ok();
}();

// Steps of whole calls are more than those of one protocol.
inline SimulationOptions of_whole_calls() {
  SimulationOptions options;
  options.steps_max = 2'000'000;
  return options;
}

inline sim::SimOptions some_device(Simulation& simulation) {
  sim::SimOptions options;
  options.offsets = simulation.random(2) == 0;
  options.lanes = 1 + static_cast<int>(simulation.random(3));
  options.queue_depth = 2 + static_cast<int>(simulation.random(7));
  options.runs_together = options.lanes == 1 ? 1 : options.queue_depth;
  if (simulation.random(3) == 0) options.row_sizes = {1, 2, 4, 8, 16};
  constexpr Duration kLongest[] = {microseconds(1), microseconds(20), milliseconds(1)};
  options.longest = kLongest[simulation.random(3)];
  return options;
}

inline Ref<sim::SimDevice> make_device(const sim::SimOptions& options) {
  return *sim::make_sim_device(*host::make_host_device(), options);
}

struct World {
  explicit World(Simulation& simulation) : World(some_device(simulation)) {}
  explicit World(const sim::SimOptions& options)
      : device(make_device(options)),
        runtime(*runtime::Runtime::make(device)),
        model(*runtime->load(sim::test::two_products())) {}
  // Nothing was done against the rules.
  void expect_no_violation(Simulation& simulation) const {
    for (const sim::Found& each : device->violations()) simulation.fail(to_string(each));
  }

  Ref<sim::SimDevice> device;
  Ref<runtime::Runtime> runtime;
  Ref<runtime::Model> model;
};

inline void expect_ok(Simulation& simulation, const Status& status) {
  simulation.expect(status.ok(), to_string(status));
}

inline const float* floats(const View& on_host) { return reinterpret_cast<const float*>(on_host.host()); }

inline View view_of(std::vector<float>& values, const Extents& extents) {
  return View::contiguous(reinterpret_cast<std::byte*>(values.data()), DType::kF32, extents);
}

}  // namespace heddle::simulated
