// lowered.h: what lowering/ makes of a specialised graph, and a program runs.
//
//   What       lower() builds one MPSGraph of a graph whose types are all static and compiles it. What it
//              feeds and what it gives is known by position, so that a run looks nothing up.
//   Checks     MPSGraph does not report what only the data shows. For each node that can go wrong so (an
//              index out of range) the executable gives flags: of every row, or one for all.
//   Threads    lower() by any thread, no lock held. A Lowered is immutable; its executable is encoded by many
//              threads at once.
//   Errors     unsupported, naming the node, for an operator or element type that Metal does not have;
//              exhausted or internal with MPSGraph's own text when it cannot be compiled.
#pragma once

#import <Metal/Metal.h>
#import <MetalPerformanceShadersGraph/MetalPerformanceShadersGraph.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "drivers/metal/defences.h"
#include "drivers/metal/limits.h"
#include "drivers/metal/owned.h"
#include "drivers/metal/weights.h"
#include "ir/graph.h"

namespace heddle::metal {

struct Feed {
  enum class Kind : uint8_t { input, weight };
  Kind kind;
  size_t index;  // of the graph's inputs, or of the module's weights
};

struct Check {
  std::string mistake;  // names the node, says what is wrong and what would be right
  // Flags: int32, 0 is right. With per_row, flag i belongs to row i * rows / flags of a run over callers'
  // rows; else to all.
  int64_t flags = 1;
  bool per_row = false;
};

struct Lowered {
  Owned<MPSGraphExecutable*> executable;  // nil: all outputs are empty, nothing is to be run
  std::vector<Feed> feeds;                // in the order of its inputsArray
  std::vector<size_t> outputs;            // of the graph; empty ones are left out
  std::vector<Check> checks;              // the rest of its results: one tensor [flags] each
  std::vector<size_t> results;            // its resultsArray: places in outputs, then in checks behind these
};

struct LoweringOptions {
  id<MTLDevice> device;
  bool half = false;  // float operators compute in f16
  Defences defences;
  Limits limits = {};  // of this Mac
};

Result<Lowered> lower(const ir::Graph& specialised, const Weights& weights, const LoweringOptions& options);

}  // namespace heddle::metal
