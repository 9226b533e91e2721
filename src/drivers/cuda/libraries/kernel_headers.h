// kernel_headers.h: the text of the headers that sources for NVRTC include: users have no folder of them.
#pragma once

#include <span>
#include <string_view>

namespace heddle::cuda {

struct KernelHeader {
  const char* name;       // as it is included
  std::string_view text;  // a zero follows
};
std::span<const KernelHeader> kernel_headers();

}  // namespace heddle::cuda
