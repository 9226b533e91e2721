// What a warm call costs that finds its model idle: counted, not timed, so that the count is the same on
// every machine.
#include "api_world_fixture.h"

namespace heddle::simulated {
namespace {

struct Cost {
  uint64_t read_modify_writes = 0, locks = 0;
};

// Of one call, on this thread, after some that make what it finds.
Cost of_a_warm_call(Simulation& simulation, const Model& model, const Tensor& x) {
  const std::span<const Tensor> inputs(&x, 1);
  for (int i = 0; i < 4; ++i) static_cast<void>(model(inputs));
  const Cost before{seam::beat->read_modify_writes, seam::beat->locks};
  const std::vector<Tensor> y = model(inputs);
  const Cost after{seam::beat->read_modify_writes, seam::beat->locks};
  simulation.expect(y[0].values<float>()[7] == x.values<float>()[7], "the model gives its input");
  return {after.read_modify_writes - before.read_modify_writes, after.locks - before.locks};
}

TEST_CASE("a warm call alone waits for no mutex and makes at most eight read-modify-writes") {
  const Device host("host");
  GraphBuilder graph("identity");
  const auto x = graph.input("x", heddle::DType::f32, {"n", int64_t{8}});
  graph.output(graph.add("Identity", {x}), "y");
  ModelOptions options;
  options.device = host;
  const Model model = graph.build(options);
  Cost cost;
  const SimulationReport report = simulate(
      1,
      [&](Simulation& simulation) {
        cost = of_a_warm_call(simulation, model, Tensor::of<float>({1, 8}, {1, 2, 3, 4, 5, 6, 7, 8}));
      },
      of_whole_calls());
  CHECK_MESSAGE(report.ok(), report.failure);
  CHECK(cost.read_modify_writes > 0);  // they are counted
  CHECK(cost.read_modify_writes <= 8);
  CHECK(cost.locks == 0);
}

}  // namespace
}  // namespace heddle::simulated
