#include "tests/metal_double/foundation/system_version.h"

#include <atomic>

namespace heddle::metal_double {
namespace {

std::atomic<SystemVersion> version_of_the_process{SystemVersion{}};

}  // namespace

void set_system_version(SystemVersion version) { version_of_the_process = version; }
SystemVersion system_version() { return version_of_the_process; }

}  // namespace heddle::metal_double
