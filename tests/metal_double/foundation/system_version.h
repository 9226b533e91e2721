// system_version.h: which macOS NSProcessInfo says that this is.
//
//   Threads    Any.
#pragma once

#include <cstdint>

namespace heddle::metal_double {

struct SystemVersion {
  int32_t major = 14, minor = 0;
};
void set_system_version(SystemVersion version);
SystemVersion system_version();

}  // namespace heddle::metal_double
