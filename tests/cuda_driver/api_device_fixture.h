// api_device_fixture.h: a device of the public API whose GPU is the double.
#pragma once

#include <doctest/doctest.h>

#include "api/internals.h"
#include "drivers/cuda/cuda_device.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/cuda_double/faults.h"

namespace heddle::cuda {

inline heddle::Device device_on_the_double() {
  cuda_double::forget_faults();
  const auto driver = make_cuda_device({.api = &cuda_double::api(), .image = cuda_double::image()});
  REQUIRE(driver.ok());
  return Internals::make_device(std::make_shared<Internals::DeviceRep>(
      Internals::DeviceRep{"cuda", take(runtime::Runtime::make(*driver)), 0}));
}

}  // namespace heddle::cuda
