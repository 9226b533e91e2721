#include "drivers/cuda/program.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace heddle::cuda {
namespace {

constexpr size_t kMostParams = 4096;  // bytes that CUDA takes

uint64_t address_of(const Patch& patch, const device::Run& run, Address flags) {
  switch (patch.kind) {
    case Patch::Kind::kArena:
      return run.arena->address() + patch.offset;
    case Patch::Kind::kInput:
      return run.inputs[patch.input].address() + patch.offset;
    case Patch::Kind::kOutput:
      return run.outputs[patch.input].address() + patch.offset;
    case Patch::Kind::kFlags:
      return flags + patch.offset;
  }
  return 0;
}

}  // namespace

CudaProgram::CudaProgram(const ir::Graph& specialised, Lowered lowered, Ref<const OpenDevice> device,
                         std::vector<Ref<const void>> keep, uint64_t own_bytes)
    : lowered_(std::move(lowered)), device_(std::move(device)), keep_(std::move(keep)) {
  take_operands(specialised);
  arena_bytes_ = lowered_.arena_bytes;
  resident_bytes_ = 4096 + lowered_.params.size() + lowered_.patches.size() * sizeof(Patch) +
                    lowered_.launches.size() * sizeof(Launch) + own_bytes;
}

Status CudaProgram::launch(const device::Run& run, Address flags, StreamHandle stream) const {
  alignas(16) std::array<std::byte, kMostParams> params;
  for (const Launch& launch : lowered_.launches) {
    std::memcpy(params.data(), lowered_.params.data() + launch.params, launch.kernel->params_bytes);
    for (uint32_t i = 0; i < launch.patch_count; ++i) {
      const Patch& patch = lowered_.patches[launch.patches + i];
      const uint64_t address = address_of(patch, run, flags);
      std::memcpy(params.data() + patch.at, &address, sizeof address);
    }
    void* pointers[] = {params.data()};
    HEDDLE_TRY(
        device_->check(device_->api.launch(launch.kernel->function, launch.blocks, 1, 1, launch.threads, 1, 1,
                                           launch.shared_bytes, stream, pointers, nullptr),
                       launch.kernel->name));
  }
  return {};
}

}  // namespace heddle::cuda
