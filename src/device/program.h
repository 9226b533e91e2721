// program.h: what a driver makes of a graph, in two stages, and the state one run of it needs.
//
//   Module     Per model: optimised graph, weights packed once and shared by all shapes and threads.
//              Immutable.
//   Program    Per (module, concrete input shapes): sizes, arena plan, prepared primitives. Immutable, any
//              number of runs at once.
//   Slot       All that a run changes: arena, scratchpad, staging. One submission at a time owns it; any
//              program of the device may use it in turn.
//   Threads    Module and Program: any thread, const. Slot: its owner of the moment.
//   Blocks     compile() and prepare() may take milliseconds and allocate: no lock may be held.
//   Lifetime   A Program keeps its Module's weights alive. Neither needs the Device after it was made, save
//              for running.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/sync.h"
#include "ir/graph.h"
#include "plan/cost.h"
#include "plan/prepare.h"

namespace heddle::device {

using plan::Signature;
struct Run;

struct ConcreteType {
  ir::DType dtype;
  ir::Extents extents;
  friend bool operator==(const ConcreteType&, const ConcreteType&) = default;
};

std::vector<ConcreteType> concrete_types(const ir::Graph& specialised, const std::vector<ir::ValueId>& ids);

class Program {
 public:
  virtual ~Program() = default;
  const std::vector<ConcreteType>& inputs() const { return inputs_; }
  const std::vector<ConcreteType>& outputs() const { return outputs_; }
  uint64_t slot_bytes() const { return slot_bytes_; }  // what a slot must hold for one run
  uint64_t resident_bytes() const {
    return resident_bytes_;
  }  // what keeping it costs, shared weights not counted
  // invalid, naming it, when an operand of the run has another dtype or shape than the program was compiled
  // for, or cannot hold the rows whose faults the run asks for.
  Status check_operands(const Run& run) const;

 protected:
  void take_operands(const ir::Graph& specialised);

  std::vector<ConcreteType> inputs_;
  std::vector<ConcreteType> outputs_;
  uint64_t slot_bytes_ = 0;
  uint64_t resident_bytes_ = 0;
};

// What a Program would do, without making one; for people.
struct PlannedNode {
  std::string op;
  std::string name;  // of its first output
  std::vector<ConcreteType> outputs;
  uint64_t step = 0;               // its number in a trace, from 1; 0: nothing runs, a renamed shape say
  std::optional<plan::Cost> cost;  // of what runs
  std::string path;                // how the driver carries it out, and why so; "" where there is one way
};

struct ProgramPlan {
  std::vector<PlannedNode> nodes;       // in order
  std::optional<uint64_t> arena_bytes;  // of values between nodes; none: the vendor's library places them
  uint64_t arena_bytes_apart = 0;       // the same if no memory were used twice
  std::optional<uint64_t> slot_bytes;   // arena and what nodes need while they run; none: as above
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
  Result<ProgramPlan> plan(std::span<const ir::Extents> inputs, uint64_t bytes_max, NoLocksHeld) const;

 private:
  // compile() and plan() for the graph whose types are concrete; shape arithmetic is gone from it.
  virtual Result<Ref<const Program>> lower(const ir::Graph& specialised, uint64_t bytes_max,
                                           NoLocksHeld) const = 0;
  virtual Result<ProgramPlan> describe(const ir::Graph& specialised, uint64_t bytes_max, NoLocksHeld) const;

  const plan::Prepared prepared_;
};

// exhausted when a run needs more than `bytes_max`: `arena_bytes` for intermediates, `weight_bytes`, and the
// outputs of `specialised`. Names the node with the largest output.
Status check_memory(const ir::Graph& specialised, uint64_t arena_bytes, uint64_t weight_bytes,
                    uint64_t bytes_max);

class Slot {
 public:
  virtual ~Slot() = default;
  // Makes it large enough for one run of `program`; keeps what it has. exhausted when there is no memory.
  virtual Status prepare(const Program& program, NoLocksHeld) = 0;
  virtual uint64_t bytes() const = 0;
};

}  // namespace heddle::device
