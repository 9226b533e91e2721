// settings.h: the environment's switches, read once.
#pragma once

#include <cstdint>
#include <string>

namespace agx_guard {

struct Settings {
  bool off = false;
  bool verbose = false;
  uint64_t warn_ms = 1000;
  uint64_t limit_ms = 0;
  uint64_t recent = 1024;
  std::string report;
  // Off only in the tests that show each of them to be necessary.
  bool by_class = true;
  bool keep = true;
  bool order = true;
};

const Settings& settings();

// One line on stderr.
void say(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace agx_guard
