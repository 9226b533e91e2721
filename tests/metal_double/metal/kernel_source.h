// kernel_source.h: MSL sources, as far as the double reads them: names of kernels and their buffer arguments.
//
//   What       A parameter `device T*` may be written, `constant T&` and `device const T*` are only read;
//              [[buffer(N)]] says where it is bound. Parameters without it are none of the host's.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::metal_double {

struct KernelArgument {
  size_t index = 0;
  bool writes = false;
  std::string name;
};
struct KernelSource {
  std::string name;
  std::vector<KernelArgument> arguments;
};
// The kernels of a source; `mistake` says what is wrong with it, and stays empty if nothing is.
std::vector<KernelSource> read_kernels(std::string_view source, std::string* mistake);

}  // namespace heddle::metal_double
