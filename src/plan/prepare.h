// prepare.h: the first stage as every driver needs it: what is done once per model, with symbolic shapes.
//
//   What       The passes of optimize.h, the rows that each value holds (batchable.h), and what callers may
//              ask of a model: its inputs and outputs and the bytes of its weights.
//   Threads    Pure. A Prepared is immutable; copies share its graph.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/sync.h"
#include "ir/graph.h"
#include "plan/passes/optimize.h"

namespace heddle::plan {

struct Signature {
  std::string name;
  ir::TensorType type;  // symbolic
};

struct Prepared {
  Ref<const ir::Graph> graph;
  std::vector<Signature> inputs, outputs;
  uint64_t weight_bytes = 0;  // each constant once, however many branches share it
};

Result<Prepared> prepare(ir::Graph graph, const Fusions& fusions = {});

}  // namespace heddle::plan
