#include "drivers/cuda/libraries/library_search.h"

#include <dlfcn.h>
#include <link.h>

#include <filesystem>
#include <string_view>

namespace heddle::cuda {

Result<FoundLibrary> find_library(std::span<const char* const> names, std::span<const std::string> folders) {
  for (const char* name : names) {
    if (void* const loaded = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD))
      return FoundLibrary{loaded, name};
  }
  std::string said;
  const auto open = [&](const std::string& file) {
    void* const opened = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) said += text("; ", dlerror());
    return opened;
  };
  for (const std::string& folder : folders) {
    for (const char* name : names) {
      const std::string file = text(folder, "/", name);
      std::error_code none;
      if (!std::filesystem::exists(file, none)) continue;
      if (void* const opened = open(file)) return FoundLibrary{opened, file};
    }
  }
  for (const char* name : names) {
    if (void* const opened = open(name)) return FoundLibrary{opened, name};
  }
  std::string all, where;
  for (const char* name : names) all += text(all.empty() ? "" : " or ", name);
  for (const std::string& folder : folders) where += text(", ", folder);
  return Status::unavailable(
      all, " was not found: it is not loaded, and was looked for in ",
      where.empty() ? "the loader's places" : where.substr(2) + " and the loader's places", said);
}

std::string file_of(const void* function) {
  Dl_info info;
  if (dladdr(function, &info) == 0 || info.dli_fname == nullptr) return "";
  return std::filesystem::absolute(info.dli_fname).string();
}

bool runtime_is_loaded() {
  const auto is_runtime = [](dl_phdr_info* library, size_t, void*) -> int {
    const std::string_view file(library->dlpi_name);
    return file.substr(file.find_last_of('/') + 1).starts_with("libcudart.so");
  };
  return dl_iterate_phdr(is_runtime, nullptr) != 0;
}

std::vector<std::string> wheel_folders() {
  const std::string own = file_of(reinterpret_cast<const void*>(&find_library));
  if (own.empty()) return {};
  const std::filesystem::path packages = std::filesystem::path(own).parent_path().parent_path();
  std::vector<std::string> folders;
  for (const char* wheel :
       {"nvidia/cu13/lib", "nvidia/cublas/lib", "nvidia/cudnn/lib", "nvidia/cuda_nvrtc/lib"})
    folders.push_back((packages / wheel).string());
  return folders;
}

}  // namespace heddle::cuda
