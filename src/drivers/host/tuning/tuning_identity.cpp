#include <dnnl.hpp>
#include <fstream>
#include <string>
#include <string_view>

#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#include "drivers/host/tuning/tuning_file.h"

namespace heddle::host {
namespace {

// Grows with what a Way means, and with the ways that are tried.
constexpr int kRules = 1;

// What tells processors apart: the first core's lines of /proc/cpuinfo.
constexpr std::string_view kTelling[] = {"vendor_id",   "cpu family",      "model",
                                         "model name",  "stepping",        "CPU part",
                                         "CPU variant", "CPU implementer", "CPU revision"};

std::string processor_name(const std::string& root) {
#if defined(__APPLE__)
  char name[256] = "";
  size_t size = sizeof name;
  if (root.empty() && sysctlbyname("machdep.cpu.brand_string", name, &size, nullptr, 0) == 0) return name;
#endif
  std::string out;
  std::ifstream file(root + "/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string name = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    const size_t value = line.find_first_not_of(" \t", colon + 1);
    for (const std::string_view telling : kTelling) {
      if (name == telling && value != std::string::npos)
        out += text(out.empty() ? "" : ", ", name, ' ', line.substr(value));
    }
  }
  return out.empty() ? "an unnamed processor" : out;
}

}  // namespace

std::string tuning_identity(int processors, const std::string& root) {
  const dnnl_version_t* version = dnnl_version();
  return text(processor_name(root), "; ", processors, " cores; instructions ",
              static_cast<int>(dnnl::get_effective_cpu_isa()), "; oneDNN ", version->major, '.',
              version->minor, '.', version->patch, "; rules ", kRules);
}

}  // namespace heddle::host
