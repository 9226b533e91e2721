// graph_double.h: graphs of kernels, and what CUDA leaves undefined about them.
//
//   Checks     A graph, or an executable one, that was destroyed; an executable graph that two threads have
//              in their hands at once, or that is launched while another stream runs it (CUDA would let the
//              second wait); a question about a stream that is captured. Nodes run as their dependencies
//              allow and else last first; those of a capture in its order.
//   Lifetime   Handles are never given twice, so that one that was destroyed is known.
#pragma once

#include "drivers/cuda/driver/driver_api.h"

namespace heddle::cuda_double {

void add_graphs(cuda::DriverApi& api);
int live_graphs();  // executable and others that were not destroyed
// The graph that the thread runs lets the host know that it is over: from now on any stream may run it.
void end_graph_of_thread();

}  // namespace heddle::cuda_double
