// chain_program.h: element-wise nodes as one program of kernels/chain.h.
//
//   What       assemble_chain() says whether the kernel takes all of the nodes; whatever it does not take
//              runs operator by operator.
//   Types      One program computes in float (f32, f16, bf16 and what is exact in f32: bool and integers of
//              8 and 16 bits; wider integers only as operands of a cast or exponents) or in int64_t (integers
//              and bool). f64 and what needs the sign of u64 have no program.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "drivers/cuda/kernels/chain.h"
#include "drivers/cuda/lowering/lowering.h"

namespace heddle::cuda {

struct ChainProgram {
  bool floats = true;
  ChainParams params;  // steps, numbers and registers
  std::vector<ir::ValueId> sources, results;
};

// Of nodes that follow each other in `graph` and whose results have one shape.
std::optional<ChainProgram> assemble_chain(const ir::Graph& graph, std::span<const ir::Node> nodes);

// `inputs` and `outputs`: which values of `graph` the operands of the lowering are.
Status launch_chain(Lowering& l, const ir::Graph& graph, ChainProgram program,
                    std::span<const ir::ValueId> inputs, std::span<const ir::ValueId> outputs);

}  // namespace heddle::cuda
