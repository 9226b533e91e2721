// program.h: modules and programs of the simulated device: the wrapped device's, under its own name.
//
//   What       Weights lie in memory of the wrapped device, which the source of the module is charged for.
//   Threads    Any, const.
//   Lifetime   As device/program.h says.
#pragma once

#include "device/device.h"

namespace heddle::sim {

class EventLoop;

class SimProgram final : public device::Program {
 public:
  explicit SimProgram(Ref<const device::Program> inner);
  const Ref<const device::Program>& inner() const { return inner_; }

 private:
  const Ref<const device::Program> inner_;
};

Result<Ref<const device::Module>> make_sim_module(device::Device& inner, plan::Prepared prepared,
                                                  const device::LoadOptions& options,
                                                  Ref<device::Source> source, Ref<EventLoop> loop);

}  // namespace heddle::sim
