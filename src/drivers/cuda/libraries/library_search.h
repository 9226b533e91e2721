// library_search.h: a shared library of NVIDIA's that may be there or not.
//
//   What       Searched are, in this order, what the process has loaded, the given folders, and the loader's
//              own places. With PyTorch in the process that is PyTorch's copy.
//   Threads    Any.
//   Blocks     As long as the loader does.
//   Errors     unavailable: names what was looked for, where, and what the loader said.
//   Lifetime   A library that was found stays loaded for as long as the process lives.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace heddle::cuda {

struct FoundLibrary {
  void* handle;
  std::string file;  // as it was found: a name, or a path
};

// `names`: of the same library, newest first.
Result<FoundLibrary> find_library(std::span<const char* const> names, std::span<const std::string> folders);

// The file that holds a function of a library; "" where the loader does not know.
std::string file_of(const void* function);

// Whether somebody has loaded CUDA's runtime, as PyTorch does: its users may synchronise the device at any
// time. The copies within NVIDIA's libraries do not count.
bool runtime_is_loaded();

// Where wheels of NVIDIA's lie when the library that holds this code lies in site-packages/heddle.
std::vector<std::string> wheel_folders();

}  // namespace heddle::cuda
