// program.h: what a driver makes of a graph, in two stages.
//
//   Module     Per model: optimised graph, weights packed once for all shapes and threads. Immutable.
//   Program    Per (module, input shapes): sizes, arena plan, prepared primitives. Immutable, runs at once.
//   Threads    Any, const.
//   Blocks     compile() and prepare() may take milliseconds and allocate: no lock may be held.
//   Lifetime   A Program keeps its Module's weights alive. Only runs need the Device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/sync.h"
#include "ir/concrete_type.h"
#include "ir/graph.h"
#include "plan/prepare.h"
#include "plan/program_plan.h"

namespace heddle::device {

using plan::Signature;
struct Run;

class Program {
 public:
  virtual ~Program() = default;
  const std::vector<ir::ConcreteType>& inputs() const { return inputs_; }
  const std::vector<ir::ConcreteType>& outputs() const { return outputs_; }
  uint64_t arena_bytes() const { return arena_bytes_; }  // between nodes, and what nodes need while they run
  uint64_t resident_bytes() const { return resident_bytes_; }  // to keep it; without the shared weights
  // Whether one contiguous view may be both: it is read before it is written. Else no write overlaps a read.
  virtual bool may_share(size_t /*output*/, size_t /*input*/) const { return false; }
  virtual bool keeps_to_a_core() const { return false; }  // its caller's: no other core helps with a run
  // invalid, naming it, when an operand of the run has another dtype or shape than the program was compiled
  // for, is strided or not aligned, or cannot hold the rows whose faults the run asks for; without an arena.
  Status check_operands(const Run& run) const;

 protected:
  void take_operands(const ir::Graph& specialised);

  std::vector<ir::ConcreteType> inputs_;
  std::vector<ir::ConcreteType> outputs_;
  uint64_t arena_bytes_ = 0;
  uint64_t resident_bytes_ = 0;
};

class Module {
 public:
  explicit Module(plan::Prepared prepared) : prepared_(std::move(prepared)) {}
  virtual ~Module() = default;
  const std::vector<Signature>& inputs() const { return prepared_.inputs; }
  const std::vector<Signature>& outputs() const { return prepared_.outputs; }
  const ir::Graph& graph() const { return *prepared_.graph; }  // after optimisation
  uint64_t weight_bytes() const { return prepared_.weight_bytes; }
  // Extents in input order, already checked against inputs() by the caller as to rank and static
  // dimensions. Contradictions between them (two inputs that disagree on "batch") and shapes the graph
  // cannot take are invalid, naming the node. Shapes whose weights, intermediates and outputs together need
  // more than `bytes_max` are exhausted, naming a node, before anything of that size is allocated.
  Result<Ref<const Program>> compile(std::span<const ir::Extents> inputs, uint64_t bytes_max,
                                     NoLocksHeld) const;
  Result<Ref<const Program>> compile(std::span<const ir::Extents> inputs, NoLocksHeld none) const {
    return compile(inputs, UINT64_MAX, none);
  }
  // What compile() would make. unsupported where a driver cannot say.
  Result<plan::ProgramPlan> plan(std::span<const ir::Extents> inputs, uint64_t bytes_max, NoLocksHeld) const;

 private:
  // compile() and plan() for the graph whose types are concrete; shape arithmetic is gone from it.
  virtual Result<Ref<const Program>> lower(const ir::Graph& specialised, uint64_t bytes_max,
                                           NoLocksHeld) const = 0;
  virtual Result<plan::ProgramPlan> describe(const ir::Graph& specialised, uint64_t bytes_max,
                                             NoLocksHeld) const;

  const plan::Prepared prepared_;
};

}  // namespace heddle::device
