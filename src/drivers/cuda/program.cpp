#include "drivers/cuda/program.h"

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

}  // namespace

StepCounts counts_of(const std::vector<Step>& steps) {
  StepCounts counts;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (const auto* const call = std::get_if<LibraryStep>(&steps[i])) {
      ++counts.calls;
      i += call->launches;
    } else {
      ++counts.launches;
    }
  }
  return counts;
}

Status IntoStream::launch(const Launch& launch, std::byte* params) {
  void* pointers[] = {params};
  return device_.check(device_.api.launch(launch.kernel->function, launch.blocks, 1, 1, launch.threads, 1, 1,
                                          launch.shared_bytes, stream_, pointers, nullptr),
                       launch.kernel->name);
}

// Where it fails, the launches behind it overwrite what it has begun.
Result<bool> IntoStream::call(const LibraryCall& call, const std::byte* operands) {
  const Status ran = call.run(operands, stream_);
  HEDDLE_TRY(device_.lost.status());
  return ran.ok();
}

CudaProgram::CudaProgram(const ir::Graph& specialised, Lowered lowered, Ref<const OpenDevice> device,
                         std::vector<Ref<const void>> keep, uint64_t own_bytes,
                         Ref<Atomic<uint32_t>> failures)
    : lowered_(std::move(lowered)),
      device_(std::move(device)),
      keep_(std::move(keep)),
      life_(std::make_shared<const char>()),
      counts_(counts_of(lowered_.steps)),
      failures_(std::move(failures)) {
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

Status CudaProgram::give_steps(const device::Run& run, Address flags, StepTaker& to) const {
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
      HEDDLE_TRY_ASSIGN(const bool taken, to.call(*by_library->call, params.data()));
      if (taken) done = by_library->launches;
      continue;
    }
    const auto& launch = std::get<Launch>(step);
    fill(launch.arguments, run, flags, params.data());
    HEDDLE_TRY(to.launch(launch, params.data()));
  }
  return {};
}

}  // namespace heddle::cuda
