// kernels.h: the kernels of an image as functions of one context, by name.
//
//   Threads    Immutable once loaded.
//   Errors     load(): unsupported when the image has no code for this GPU.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "drivers/cuda/driver/driver_api.h"

namespace heddle::cuda {

struct Kernel {
  const char* name;     // of list.inc
  size_t params_bytes;  // of the struct that it takes
  Function function = nullptr;
};

class Kernels {
 public:
  static Result<Kernels> load(const DriverApi& api, const void* image);

  const Kernel* find(std::string_view name) const;  // null: list.inc has none of that name
  ModuleHandle module() const { return module_; }

 private:
  ModuleHandle module_ = nullptr;
  std::map<std::string, Kernel, std::less<>> by_name_;
};

}  // namespace heddle::cuda
