#include "drivers/cuda/program.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace heddle::cuda {
namespace {

uint64_t address_of(const Patch& patch, const device::Run& run, Address flags) {
  switch (patch.kind) {
    case Patch::Kind::kArena:  // without one, all values between nodes have no elements
      return run.arena == nullptr ? 0 : run.arena->address() + patch.offset;
    case Patch::Kind::kInput:
      return run.inputs[patch.input].address() + patch.offset;
    case Patch::Kind::kOutput:
      return run.outputs[patch.input].address() + patch.offset;
    case Patch::Kind::kFlags:
      return flags + patch.offset;
  }
  return 0;
}

bool may_be_graph(const Lowered& lowered) {
  return lowered.steps.size() >= CudaProgram::kLeastGraphLaunches && lowered.arena_bytes > 0 &&
         std::ranges::all_of(lowered.steps,
                             [](const Step& step) { return std::holds_alternative<Launch>(step); });
}

}  // namespace

CudaProgram::CudaProgram(const ir::Graph& specialised, Lowered lowered, Ref<const OpenDevice> device,
                         std::vector<Ref<const void>> keep, uint64_t own_bytes)
    : lowered_(std::move(lowered)),
      device_(std::move(device)),
      keep_(std::move(keep)),
      life_(std::make_shared<const char>()),
      fits_graph_(may_be_graph(lowered_)) {
  take_operands(specialised);
  arena_bytes_ = lowered_.arena_bytes;
  resident_bytes_ = 4096 + lowered_.params.size() + lowered_.patches.size() * sizeof(Patch) +
                    lowered_.steps.size() * sizeof(Step) + own_bytes;
}

void CudaProgram::fill(const Arguments& arguments, const device::Run& run, Address flags,
                       std::byte* params) const {
  std::memcpy(params, lowered_.params.data() + arguments.params, arguments.bytes);
  for (uint32_t i = 0; i < arguments.patch_count; ++i) {
    const Patch& patch = lowered_.patches[arguments.patches + i];
    const uint64_t address = address_of(patch, run, flags);
    std::memcpy(params + patch.at, &address, sizeof address);
  }
}

Status CudaProgram::launch(const device::Run& run, Address flags, StreamHandle stream) const {
  alignas(16) std::array<std::byte, kMostParams> params;
  uint32_t done = 0;  // of the launches that follow, by the library
  for (const Step& step : lowered_.steps) {
    if (done > 0) {
      --done;
      continue;
    }
    if (const auto* by_library = std::get_if<LibraryStep>(&step)) {
      fill(by_library->arguments, run, flags, params.data());
      if (!by_library->call->takes(params.data())) continue;
      const Status ran = by_library->call->run(params.data(), stream);
      HEDDLE_TRY(device_->lost.status());
      if (ran.ok()) done = by_library->launches;  // else the launches behind it overwrite what it has begun
      continue;
    }
    const auto& launch = std::get<Launch>(step);
    fill(launch.arguments, run, flags, params.data());
    void* pointers[] = {params.data()};
    HEDDLE_TRY(
        device_->check(device_->api.launch(launch.kernel->function, launch.blocks, 1, 1, launch.threads, 1, 1,
                                           launch.shared_bytes, stream, pointers, nullptr),
                       launch.kernel->name));
  }
  return {};
}

}  // namespace heddle::cuda
