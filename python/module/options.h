// options.h: small conversions that several bindings share.
#pragma once

#include <heddle/heddle.h>
#include "gil.h"

#include <chrono>

namespace heddle::python {

// None: no limit. Seconds, as everywhere in Python.
inline Timeout to_timeout(nanobind::handle seconds) {
  if (seconds.is_none()) return std::nullopt;
  const auto value = nanobind::cast<double>(seconds);
  if (!(value >= 0))
    throw Error(ErrorCode::invalid,
                "timeout must be None or seconds of at least 0, not " + std::to_string(value));
  constexpr double kCentury = 3e9;
  if (value > kCentury) return std::nullopt;
  return std::chrono::nanoseconds(static_cast<int64_t>(value * 1e9));
}

// None: the process's host device, made on first use, which importing the package is not.
inline Device to_device(nanobind::handle device) {
  if (device.is_none()) return Device();
  if (PyUnicode_Check(device.ptr()))
    return Device(std::string_view(nanobind::borrow<nanobind::str>(device).c_str()));
  return nanobind::cast<Device>(device);
}

// What load() and build() take by keyword beside device and precision. Unknown words are TypeErrors.
ModelOptions to_model_options(const nanobind::kwargs& named);

}  // namespace heddle::python
