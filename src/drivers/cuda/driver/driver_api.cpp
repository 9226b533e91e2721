#include "drivers/cuda/driver/driver_api.h"

#include <dlfcn.h>

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
  return api;
}

}  // namespace

Result<const DriverApi*> nvidia_driver() {
  static const Result<DriverApi> loaded = load();
  if (!loaded.ok()) return loaded.status();
  return &*loaded;
}

bool loses_device(Code code) {
  return (code >= 700 && code < 720) || code == kEccUncorrectable || code == kUnknown;
}

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
  if (code == kDeinitialized) return Status::unavailable(message);
  return Status::internal(message);
}

}  // namespace heddle::cuda
