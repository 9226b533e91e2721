// Any values of Heddle's environment variables: options in their ranges, or words that name the variable.
#include "api/environment.h"

#include <stdlib.h>

#include "fuzz_fixture.h"

namespace heddle::fuzz {
namespace {

// Whether what was thrown names one of the variables that are set, with its value.
void reads(const std::vector<EnvironmentVariable>& set, void (*read)()) {
  try {
    read();
  } catch (const Error& error) {
    must(error.code() == ErrorCode::invalid, "a wrong value is invalid");
    const std::string_view words = error.what();
    bool named = false;
    for (const EnvironmentVariable& variable : set) {
      named = named || (words.find(variable.name) != std::string_view::npos &&
                        words.find(variable.value) != std::string_view::npos);
    }
    must(named, "a wrong value is refused with its variable and itself");
  }
}

void read_options() {
  const DeviceOptions o = options_from_environment();
  must(o.threads >= 0 && o.in_flight >= 0 && o.in_flight <= 1024, "counts are in their ranges");
  must(o.slices >= 0 && o.slices <= 1024, "slices are in their range");
  must(o.streams == 0 || (o.streams >= 2 && o.streams <= 1024), "streams are in their range");
  must(o.memory_fraction > 0 && o.memory_fraction <= 1, "the fraction is in its range");
  must(o.stream_wait.count() >= 0, "a wait is not negative");
}

void run(Bytes bytes) {
  static const std::vector<EnvironmentVariable> kKnown = environment();
  static const char* const kValues[] = {"0",  "1",    "-1",   "1e9",  "nan", "inf",
                                        "on", "wait", "auto", "/a:b", "2",   "9223372036854775807"};
  for (const EnvironmentVariable& variable : kKnown) ::unsetenv(variable.name.c_str());
  for (size_t count = bytes.below(4); count > 0; --count) {
    std::string value;
    if (bytes.flag()) {
      value = kValues[bytes.below(std::size(kValues))];
    } else {
      value = std::string(bytes.words(32));
    }
    value = value.substr(0, value.find('\0'));  // as the system has it
    ::setenv(kKnown[bytes.below(kKnown.size())].name.c_str(), value.c_str(), 1);
  }
  std::vector<EnvironmentVariable> set;
  for (const EnvironmentVariable& variable : environment()) {
    if (!variable.value.empty()) set.push_back(variable);
  }
  reads(set, read_options);
  reads(set, [] { (void)host_tuning_from_environment(); });
  reads(set, [] { (void)cuda_graphs_from_environment(); });
  reads(set, [] { (void)cuda_nvrtc_from_environment(); });
  reads(set, [] {
    for (const std::string& folder : cuda_libraries_from_environment())
      must(folder.starts_with('/'), "a folder's path begins with /");
  });
}

}  // namespace
}  // namespace heddle::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  heddle::fuzz::run({data, size});
  return 0;
}
