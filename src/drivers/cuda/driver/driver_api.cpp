#include "drivers/cuda/driver/driver_api.h"

#include <dlfcn.h>

#include <algorithm>

#include "base/made_once.h"

namespace heddle::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

Result<DriverApi> load() {
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    return Status::unavailable("NVIDIA's driver is not installed: ", why == nullptr ? kLibrary : why);
  }
  const auto too_old = [](const char* name) {
    return Status::unavailable("NVIDIA's driver is too old: ", kLibrary, " has no ", name,
                               "; Heddle needs the driver of CUDA 12 or newer (525.60.13)");
  };
  const auto find = reinterpret_cast<FindFunction>(dlsym(library, kFindFunction));
  if (find == nullptr) return too_old(kFindFunction);
  DriverApi api;
#define HEDDLE_CUDA_LOAD(member, name, arguments)                                         \
  if (void* function = nullptr;                                                           \
      find(name, &function, kInterface, 0, nullptr) == kSuccess && function != nullptr) { \
    api.member = reinterpret_cast<decltype(api.member)>(function);                        \
  } else {                                                                                \
    return too_old(name);                                                                 \
  }
  HEDDLE_CUDA_FUNCTIONS(HEDDLE_CUDA_LOAD)
#undef HEDDLE_CUDA_LOAD
#define HEDDLE_CUDA_LOOK_FOR(member, name, arguments)                                           \
  if (void* function = nullptr; find(name, &function, kNewerInterface, 0, nullptr) == kSuccess) \
    api.member = reinterpret_cast<decltype(api.member)>(function);
  HEDDLE_CUDA_NEWER_FUNCTIONS(HEDDLE_CUDA_LOOK_FOR)
#undef HEDDLE_CUDA_LOOK_FOR
  return api;
}

}  // namespace

Result<const DriverApi*> nvidia_driver() {
  static constinit MadeOnce<const Result<DriverApi>> loaded;
  const Result<DriverApi>& api = loaded.get([] { return load(); });
  if (!api.ok()) return api.status();
  return &*api;
}

// Those after which CUDA wants the process ended, or the context made anew, which is the same: it is the
// process's. ECC, NVLink, contained; 7xx: errors of kernels, a context that is gone; the server of MPS ended
// this client; another kind of device failed; unknown.
bool loses_device(Code code) {
  constexpr Code kLosses[] = {214, 220, 226, kIllegalAddress, 702, 709, 710, 714, 715, 716, 717, 718, 719,
                              721, 810, 911, kUnknown};
  return std::ranges::find(kLosses, code) != std::end(kLosses);
}

namespace {

// The system is not ready, versions do not fit, or MPS takes no client.
bool is_broken_driver(Code code) { return code >= 802 && code <= 809; }

// Code for other GPUs, or intermediate code that this driver cannot compile.
bool is_others_image(Code code) {
  constexpr Code kImages[] = {kNoBinaryForGpu, 218, 221, 222, 223};
  return std::ranges::find(kImages, code) != std::end(kImages);
}

}  // namespace

Status status_of(const DriverApi& api, Code code, std::string_view what) {
  if (code == kSuccess) return {};
  const char *name = nullptr, *words = nullptr;
  if (api.error_name(code, &name) != kSuccess || name == nullptr) name = "an error without a name";
  if (api.error_text(code, &words) != kSuccess || words == nullptr) words = "CUDA says no more";
  const std::string message = text(name, " (", code, "): ", words, ", from ", what);
  if (loses_device(code)) {
    return Status::device_lost(message, "; CUDA gives up the device for this process: restart it");
  }
  if (code == kOutOfMemory) return Status::exhausted(message);
  if (code == kDeinitialized || code == kNoDevice || is_broken_driver(code))
    return Status::unavailable(message);
  if (is_others_image(code)) return Status::unsupported(message);
  return Status::internal(message);
}

}  // namespace heddle::cuda
