#include "api/environment.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <locale>
#include <optional>
#include <sstream>
#include <string>

#include "api/log.h"
#include "base/status.h"

namespace heddle {
namespace {

struct Variable {
  const char* name;
  const char* meaning;
  const char* right;  // what a right value looks like
  bool (*apply)(std::string_view value, DeviceOptions& options);
};

#if !defined(__cpp_lib_to_chars)
// Apple's library reads no fraction with from_chars.
bool parse(std::string_view value, double& number) {
  std::istringstream in{std::string(value)};
  in.imbue(std::locale::classic());
  return static_cast<bool>(in >> std::noskipws >> number) && in.peek() == std::char_traits<char>::eof();
}
#endif

template <class T>
bool parse(std::string_view value, T& number) {
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  return error == std::errc() && end == value.data() + value.size();
}

bool set_exhaustion(std::string_view value, DeviceOptions& o) {
  if (value == "share") {
    o.exhaustion = Exhaustion::share;
  } else if (value == "wait") {
    o.exhaustion = Exhaustion::wait;
  } else if (value == "fail") {
    o.exhaustion = Exhaustion::fail;
  } else {
    return false;
  }
  return true;
}

bool set_numa(std::string_view value, DeviceOptions& o) {
  if (value != "auto" && value != "off") return false;
  o.numa_copies = value == "auto";
  return true;
}

bool set_stream_wait(std::string_view value, DeviceOptions& o) {
  int64_t ms = 0;
  if (!parse(value, ms) || ms < 0) return false;
  // Nearly 300 years are the longest wait that nanoseconds count: longer ones are that.
  constexpr auto kLongest =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::nanoseconds::max());
  o.stream_wait = std::min(std::chrono::milliseconds(ms), kLongest);
  return true;
}

bool takes_on_off_or_all(std::string_view v, DeviceOptions&) { return v == "on" || v == "off" || v == "all"; }
bool takes_folder(std::string_view v, DeviceOptions&) { return v.starts_with('/'); }

// "/a:/b" as folders; nothing where one of them is no path from / on.
std::optional<std::vector<std::string>> folders_of(std::string_view value) {
  std::vector<std::string> folders;
  while (true) {
    const size_t end = value.find(':');
    folders.emplace_back(value.substr(0, end));
    if (!folders.back().starts_with('/')) return std::nullopt;
    if (end == std::string_view::npos) return folders;
    value.remove_prefix(end + 1);
  }
}
bool takes_folders(std::string_view v, DeviceOptions&) { return folders_of(v).has_value(); }

bool set_executable_bytes(std::string_view value, DeviceOptions& o) {
  uint64_t mib = 0;
  if (!parse(value, mib) || mib > (uint64_t{1} << 30)) return false;
  o.executable_bytes = mib << 20;
  return true;
}

constexpr char kTune[] = "HEDDLE_TUNE", kCacheFolder[] = "HEDDLE_CACHE_DIR",
               kCudaImage[] = "HEDDLE_CUDA_IMAGE", kCudaGraphs[] = "HEDDLE_CUDA_GRAPHS",
               kCudaLibraries[] = "HEDDLE_CUDA_LIBRARIES", kCudaNvrtc[] = "HEDDLE_CUDA_NVRTC";

constexpr std::array kVariables = {
    Variable{"HEDDLE_DEVICE", "the device of a program that names none", "the name of one of this build's",
             [](std::string_view, DeviceOptions&) { return true; }},  // refused when it is opened
    Variable{"HEDDLE_THREADS",
             "CPU threads for computing, callers included (0: the cores this process may use)",
             "a number of at least 0",
             [](std::string_view v, DeviceOptions& o) { return parse(v, o.threads) && o.threads >= 0; }},
    Variable{"HEDDLE_STREAMS", "streams a device has (0: 32, more where it holds more calls at once)",
             "0, or a number from 2 to 1024",
             [](std::string_view v, DeviceOptions& o) {
               return parse(v, o.streams) && (o.streams == 0 || o.streams >= 2) && o.streams <= 1024;
             }},
    Variable{"HEDDLE_STREAM_EXHAUSTION", "what a thread gets when all streams are leased",
             "share, wait or fail", set_exhaustion},
    Variable{"HEDDLE_STREAM_WAIT_MS", "how long it may wait then, milliseconds", "a number of at least 0",
             set_stream_wait},
    Variable{"HEDDLE_EXECUTABLE_MIB", "compiled shapes kept, MiB (0: no limit)", "a number of at least 0",
             set_executable_bytes},
    Variable{"HEDDLE_MEMORY_FRACTION", "the part of the device's memory this process may use",
             "a number above 0 and at most 1",
             [](std::string_view v, DeviceOptions& o) {
               return parse(v, o.memory_fraction) && o.memory_fraction > 0 && o.memory_fraction <= 1;
             }},
    Variable{"HEDDLE_IN_FLIGHT", "calls on a device at once (0: what the device asks for)",
             "a number from 0 to 1024",
             [](std::string_view v, DeviceOptions& o) {
               return parse(v, o.in_flight) && o.in_flight >= 0 && o.in_flight <= 1024;
             }},
    Variable{"HEDDLE_SLICES", "threads whose eager operators go on at once (0: as many as the device needs)",
             "a number from 0 to 1024",
             [](std::string_view v, DeviceOptions& o) {
               return parse(v, o.slices) && o.slices >= 0 && o.slices <= 1024;
             }},
    Variable{kTune, "whether it is measured how products are best computed, and kept (all: at once)",
             "on, off or all", takes_on_off_or_all},
    Variable{kCacheFolder, "where it is kept", "a folder's path from / on", takes_folder},
    Variable{kCudaImage, "kernels for NVIDIA GPUs, in the place of those that were built in",
             "the path of a file that nvcc made of this version's kernels",
             [](std::string_view, DeviceOptions&) { return true; }},  // refused when a device is opened
    Variable{kCudaGraphs, "whether runs on NVIDIA GPUs that come again are replayed as CUDA's graphs",
             "on, all (also where that may disturb other users of CUDA in the process) or off",
             takes_on_off_or_all},
    Variable{kCudaLibraries,
             "where cuBLASLt, cuDNN and NVRTC are looked for, before CUDA_HOME/lib64 and NVIDIA's wheels",
             "folders' paths from / on, with ':' between them", takes_folders},
    Variable{kCudaNvrtc, "whether NVRTC compiles a kernel for each chain of element-wise operators",
             "on or off", [](std::string_view v, DeviceOptions&) { return v == "on" || v == "off"; }},
    Variable{"HEDDLE_NUMA", "copies of a model's weights on each memory node whose threads call it",
             "auto (where it pays) or off", set_numa},
};

std::string_view set_value(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void check(const Variable& variable, std::string_view value, DeviceOptions& options) {
  if (value.empty() || variable.apply(value, options)) return;
  throw Error(ErrorCode::invalid,
              text("environment variable ", variable.name, " is '", value, "'; it takes ", variable.right));
}

// Those that are no device's option.
void check_alone(std::initializer_list<std::string_view> names) {
  DeviceOptions unused;
  for (const Variable& variable : kVariables) {
    if (std::ranges::find(names, variable.name) != names.end())
      check(variable, set_value(variable.name), unused);
  }
}

// As the XDG Base Directory Specification has it, which ignores relative paths; "" where there is no home.
std::string cache_folder() {
  if (const std::string_view chosen = set_value(kCacheFolder); !chosen.empty()) return std::string(chosen);
  if (const std::string_view cache = set_value("XDG_CACHE_HOME"); cache.starts_with('/'))
    return text(cache, "/heddle");
  const std::string_view home = set_value("HOME");
  return home.starts_with('/') ? text(home, "/.cache/heddle") : "";
}

}  // namespace

std::string device_from_environment() { return std::string(set_value(kVariables.front().name)); }

DeviceOptions options_from_environment() {
  DeviceOptions options;
  for (const Variable& variable : kVariables) {
    check(variable, set_value(variable.name), options);
  }
  return options;
}

host::HostTuning host_tuning_from_environment() {
  check_alone({kTune, kCacheFolder});
  const std::string_view tune = set_value(kTune);
  return {.on = tune != "off",
          .all = tune == "all",
          .folder = cache_folder(),
          .warn = [](const std::string& what) { log(LogLevel::warning, what); }};
}

std::string cuda_image_from_environment() { return std::string(set_value(kCudaImage)); }

std::string cuda_graphs_from_environment() {
  check_alone({kCudaGraphs});
  const std::string_view value = set_value(kCudaGraphs);
  return value.empty() ? "on" : std::string(value);
}

bool cuda_nvrtc_from_environment() {
  check_alone({kCudaNvrtc});
  return set_value(kCudaNvrtc) != "off";
}

std::vector<std::string> cuda_libraries_from_environment() {
  check_alone({kCudaLibraries});
  std::vector<std::string> folders;
  if (const std::string_view named = set_value(kCudaLibraries); !named.empty()) folders = *folders_of(named);
  if (const std::string_view home = set_value("CUDA_HOME"); home.starts_with('/'))
    folders.push_back(text(home, "/lib64"));
  return folders;
}

std::vector<EnvironmentVariable> environment() {
  std::vector<EnvironmentVariable> list;
  for (const Variable& variable : kVariables) {
    list.push_back(
        {variable.name, text(variable.meaning, ": ", variable.right), std::string(set_value(variable.name))});
  }
  return list;
}

}  // namespace heddle
