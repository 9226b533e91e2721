// program.h: the host's Module and Program: a graph as prepared steps over an arena.
//
//   What       HostModule: the optimised graph and its packed weights. HostProgram: for concrete shapes,
//              steps in order, each run on the calling thread, which shares its loops with the team's helpers
//              when it is alone.
//   Invariant  Immutable; a run changes its arena and its outputs only.
//   Threads    Any number of runs at once, each with an arena of its own.
//   Errors     run(): invalid for what only the data shows, unless the run asks for the faults of its rows
//              and a row is to blame; internal when oneDNN fails.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "device/device.h"
#include "drivers/host/layout/storage.h"
#include "drivers/host/machine/team.h"
#include "drivers/host/onednn/weight_store.h"
#include "drivers/host/step.h"

namespace heddle::host {

class HostProgram final : public device::Program {
 public:
  struct Limits {
    uint64_t weight_bytes, bytes_max;
  };
  static Result<Ref<const device::Program>> make(const ir::Graph& specialised, WeightStore& weights,
                                                 int width, const Limits& limits);
  // The same for less than a program: `bytes_max` is for its arena and what its steps keep. Unless it is
  // `outermost`, the graph is inside another's node.
  static Result<Ref<HostProgram>> prepare(const ir::Graph& specialised, WeightStore& weights, int width,
                                          uint64_t bytes_max, bool outermost = false);
  struct Named {
    const char* op;  // for the trace, and for what fails
    std::unique_ptr<Step> step;
  };
  // Steps without operands, made elsewhere than by lowering.
  explicit HostProgram(std::vector<Named> steps = {}) : steps_(std::move(steps)) {}

  bool may_share(size_t output, size_t input) const override;
  bool keeps_to_a_core() const override { return keeps_to_a_core_; }
  Status run(const device::Run& run, Team& team) const;
  // The steps alone, on an arena of arena_bytes().
  Status run_steps(const RunContext& context) const;
  std::span<const Named> steps() const { return steps_; }
  std::string path() const;  // of all steps that have one, each once

 private:
  void note_first(const char* what) const;
  Status prepare_storage(const ir::Graph& graph, const WeightStore& weights);
  Status prepare_steps(const ir::Graph& graph, WeightStore& weights, int width, uint64_t bytes_left,
                       bool outermost);
  void note_sharing(const ir::Graph& graph);

  Storage storage_;
  std::vector<ir::Tensor> constants_;  // keeps their bytes
  std::vector<Named> steps_;
  static constexpr int kAlways = INT32_MAX, kNever = -1;
  std::vector<int> last_reads_;  // by input: the last step that reads it; kAlways: it is read to the end
  std::vector<int> writes_;      // by output: the step that writes it; their number: it is copied after them
  std::vector<std::pair<size_t, size_t>> replaced_;  // output and input of one step, place by place
  bool brief_ = false;                               // a few microseconds at most
  bool keeps_to_a_core_ = false;                     // no step of it is divided
  // Has a run ended: two first runs at once may both say no, which does no harm.
  mutable Atomic<bool> ran_{false};
};

class HostModule final : public device::Module {
 public:
  HostModule(plan::Prepared prepared, Ref<const Engine> engine, Ref<device::Source> source, int width,
             Ref<const Nodes> nodes = nullptr);

 private:
  Result<Ref<const device::Program>> lower(const ir::Graph& specialised, uint64_t bytes_max,
                                           NoLocksHeld) const override;
  Result<plan::ProgramPlan> describe(const ir::Graph& specialised, uint64_t bytes_max,
                                     NoLocksHeld) const override;

  std::unique_ptr<WeightStore> weights_;
  int width_;
};

}  // namespace heddle::host
