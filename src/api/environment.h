// environment.h: the environment variables Heddle reads, all of them, in one table.
//
//   What       Defaults for the process's own devices; an option given in code wins. A value that does not
//              fit is refused by name.
//   Threads    Any, as long as no thread changes the environment meanwhile.
#pragma once

#include <heddle/heddle.h>

#include "drivers/host/host_device.h"

namespace heddle {

std::string device_from_environment();     // "" when not set
DeviceOptions options_from_environment();  // throws invalid, naming variable, value and what would be right
// HEDDLE_TUNE and HEDDLE_CACHE_DIR, likewise. Of every device of the process, Device::open()'s too: it is a
// matter of the machine.
host::HostTuning host_tuning_from_environment();
std::string cuda_image_from_environment();   // the path of a file; "" when not set
std::string cuda_graphs_from_environment();  // throws as the others; "on" when not set
bool cuda_nvrtc_from_environment();          // likewise
// Folders in which NVIDIA's libraries may lie: HEDDLE_CUDA_LIBRARIES', then CUDA_HOME's. Throws as above.
std::vector<std::string> cuda_libraries_from_environment();

}  // namespace heddle
