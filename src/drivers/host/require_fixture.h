// require_fixture.h: what the tests of this folder take from the driver's results.
//
//   What       require() gives a result's value, or fails the test with its status. view_of() is a view of a
//              tensor's elements, which the tensor has to outlive.
#pragma once

#include <doctest/doctest.h>

#include <utility>

#include "device/plain_source_fixture.h"
#include "drivers/host/host_device.h"

namespace heddle::host {

template <class T>
T require(Result<T> result) {
  REQUIRE_MESSAGE(result.ok(), to_string(result.status()));
  return std::move(result).value();
}

inline device::View view_of(const ir::Tensor& tensor) {
  return device::View::contiguous(static_cast<std::byte*>(const_cast<void*>(tensor.data())), tensor.dtype(),
                                  tensor.extents());
}

inline Ref<device::Source> source_of_tests() {
  static const Ref<device::Device> device = require(make_host_device({.threads = 1}));
  return device::plain_source(*device);
}

}  // namespace heddle::host
