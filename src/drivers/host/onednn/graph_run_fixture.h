// graph_run_fixture.h: one run of a graph on a host device, for tests of single steps.
//
//   Threads    One thread.
#pragma once

#include <random>
#include <utility>
#include <vector>

#include "drivers/host/program.h"
#include "drivers/host/require_fixture.h"
#include "ir/graph.h"

namespace heddle::host {

inline ir::Tensor uniform(ir::DType dtype, const ir::Extents& extents, unsigned seed) {  // from -1 to 1
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> value(-1, 1);
  ir::Tensor tensor = ir::Tensor::zeros(dtype, extents);
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, value(random));
  return tensor;
}

struct GraphRun {
  std::vector<ir::Tensor> outputs;
  Ref<const device::Module> module;
  Ref<const device::Program> program;
  const HostProgram& host() const { return static_cast<const HostProgram&>(*program); }
};

inline GraphRun run_graph(device::Device& device, ir::Graph graph, const std::vector<ir::Tensor>& inputs,
                          const device::LoadOptions& options = {}) {
  GraphRun ran;
  ran.module = require(device.load(std::move(graph), options, device::plain_source(device), NoLocksHeld()));
  std::vector<ir::Extents> extents;
  std::vector<device::View> from, to;
  for (const ir::Tensor& input : inputs) {
    extents.push_back(input.extents());
    from.push_back(view_of(input));
  }
  ran.program = require(ran.module->compile(extents, NoLocksHeld()));
  for (const ir::ConcreteType& type : ran.program->outputs())
    ran.outputs.push_back(ir::Tensor::zeros(type.dtype, type.extents));
  for (const ir::Tensor& output : ran.outputs) to.push_back(view_of(output));
  const Ref<device::Buffer> arena = require(device::arena_for(device, *ran.program));
  const auto queue = require(device.make_queue(NoLocksHeld()));
  device::CommandList list;
  list.run(ran.program, arena, from, to);
  REQUIRE(queue->submit(list, 1, NoLocksHeld()).ok());
  return ran;
}

}  // namespace heddle::host
