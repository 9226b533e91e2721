// device_name.h: "sim", "sim:1": which driver, and which of its devices.
//
//   Invariant  to_string(parse(x)) names the same device as x: an ordinal of 0 is left out.
//   Errors     parse() throws invalid for an ordinal that is no number.
#pragma once

#include <string>
#include <string_view>

namespace heddle {

struct DeviceName {
  std::string driver;
  int ordinal = 0;

  static DeviceName parse(std::string_view name);
  std::string to_string() const;
};

}  // namespace heddle
