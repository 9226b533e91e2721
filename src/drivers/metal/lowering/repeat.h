// repeat.h: the same work a fixed number of times: recurrent cells, loops.
//
//   What       repeat() emits `body` once for each iteration while there are few, else once inside MPSGraph's
//              for loop. The body takes the number of the iteration (i32 [1]) and the carried tensors; it
//              gives the carried ones for the next iteration, and tensors that are stacked along a new axis
//              0.
//   Flags      What a body wants to report is carried out of the loop.
//   Empty      nil stays nil.
//   Threads    One thread.
#pragma once

#include <functional>
#include <vector>

#include "drivers/metal/lowering/graph_work.h"

namespace heddle::metal {

struct Iteration {
  std::vector<Tensor> carried;
  std::vector<Tensor> stacked;
};
using IterationBody = std::function<Result<Iteration>(Tensor number, const std::vector<Tensor>& carried)>;

// count: 1 or more.
Result<Iteration> repeat(GraphWork& work, const Emit& emit, int64_t count, const std::vector<Tensor>& carried,
                         const IterationBody& body);

}  // namespace heddle::metal
