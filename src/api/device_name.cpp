#include "api/device_name.h"

#include <heddle/heddle.h>

#include <charconv>

#include "base/status.h"

namespace heddle {

DeviceName DeviceName::parse(std::string_view name) {
  DeviceName parsed;
  const size_t colon = name.find(':');
  parsed.driver = name.substr(0, colon);
  if (colon == std::string_view::npos) return parsed;
  const std::string_view digits = name.substr(colon + 1);
  const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), parsed.ordinal);
  if (error != std::errc() || rest != digits.data() + digits.size() || parsed.ordinal < 0) {
    throw Error(ErrorCode::invalid, text("'", name, "' names no device: behind the colon stands '", digits,
                                         "', where a number from 0 on has to be"));
  }
  return parsed;
}

std::string DeviceName::to_string() const { return ordinal == 0 ? driver : text(driver, ':', ordinal); }

}  // namespace heddle
