// compiled_chain_fixture.h: chains on devices that compile them, and on devices that do not.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "device/plain_source_fixture.h"
#include "drivers/cuda/cuda_device.h"
#include "drivers/cuda/program.h"
#include "ir/builder.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/cuda_double/faults.h"
#include "tests/cuda_double/nvrtc_double.h"
#include "tests/driver_conformance/session_fixture.h"

namespace heddle::cuda::compiled_chain_fixture {

// A graph with what it is run on.
struct ChainModel {
  ir::Graph graph;
  std::vector<ir::Tensor> inputs;
};

// x + row, then tanh: a source of its own for each dtype, and none for extents.
inline ChainModel row_chain(const ir::Extents& extents, ir::DType dtype = ir::DType::kF32) {
  ChainModel made{{},
                  {conformance::random_tensor(dtype, extents, 1),
                   conformance::random_tensor(dtype, {extents[extents.rank() - 1]}, 2)}};
  ir::Builder b;
  const ir::ValueId x = b.input("x", made.inputs[0].type()), row = b.input("row", made.inputs[1].type());
  b.output(*b.node("Tanh", {*b.node("Add", {x, row})}));
  made.graph = *b.take();
  return made;
}

inline CudaOptions compiling(const NvrtcApi& nvrtc = cuda_double::nvrtc()) {
  return {.api = &cuda_double::api(), .image = cuda_double::image(), .nvrtc = &nvrtc};
}
inline CudaOptions interpreting() {
  return {.api = &cuda_double::api(), .image = cuda_double::image(), .compiles_chains = false};
}

inline Ref<device::Device> opened(const CudaOptions& options) {
  const auto made = make_cuda_device(options);
  REQUIRE_MESSAGE(made.ok(), to_string(made.status()));
  return *made;
}

inline Result<Ref<const device::Program>> compile_chain(device::Device& device, const ChainModel& chain) {
  HEDDLE_TRY_ASSIGN(const Ref<const device::Module> module,
                    device.load(chain.graph, {}, device::plain_source(device), NoLocksHeld()));
  return conformance::compile(*module, chain.inputs);
}

// "compiled_chain_f32" where the first launch is NVRTC's.
inline std::string first_kernel(const device::Program& program) {
  const std::vector<Step>& steps = static_cast<const CudaProgram&>(program).lowered().steps;
  return steps.empty() ? "none" : std::get<Launch>(steps[0]).kernel->name;
}
inline bool is_compiled(const device::Program& program) {
  return first_kernel(program).starts_with("compiled_");
}

inline std::vector<ir::Tensor> outputs_of(device::Device& device, const device::Program& program,
                                          const ChainModel& chain) {
  const Ref<const device::Program> shared(Ref<const void>(), &program);
  const auto got = conformance::Session(device).run(shared, chain.inputs);
  REQUIRE_MESSAGE(got.ok(), to_string(got.status()));
  return *got;
}

}  // namespace heddle::cuda::compiled_chain_fixture
