// chain_source.h: a chain's program as the source of a kernel, which NVRTC compiles.
//
//   What       The source says which operators there are, the types of all values, and how each operand lies
//              (kernels/compiled_chain.h). Extents, strides, numbers and addresses are the kernel's
//              parameters, so that chains of any shape and other numbers share a source.
//   Threads    A pure function; any thread.
#pragma once

#include <string>
#include <vector>

#include "drivers/cuda/kernels/chain.h"

namespace heddle::cuda {

struct ChainSourceText {
  std::string source;
  std::vector<uint64_t> params;           // the kernel's; addresses are the caller's to fill in
  std::vector<size_t> operands, results;  // the words of `params` that are their addresses
  int quads = 1;                          // of a thread at a time, in these parameters
  size_t params_bytes() const { return params.size() * sizeof(uint64_t); }
};

// `params`: complete but for addresses. `quads` above 1: threads take several where the source has it so.
// `floats`: it computes in float, else in int64_t.
ChainSourceText source_of(const ChainParams& params, bool floats);

}  // namespace heddle::cuda
