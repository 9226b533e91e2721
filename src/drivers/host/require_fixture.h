// require_fixture.h: what the tests of this folder take from the driver's results.
//
//   What       require() gives a result's value, or fails the test with its status. view_of() is a view of a
//              tensor's elements, which the tensor has to outlive.
#pragma once

#include <doctest/doctest.h>

#include <utility>

#include "device/device.h"

namespace heddle::host {

template <class T>
T require(Result<T> result) {
  REQUIRE_MESSAGE(result.ok(), to_string(result.status()));
  return std::move(result).value();
}

inline device::View view_of(const ir::Tensor& tensor) {
  return device::View::contiguous(nullptr, static_cast<std::byte*>(const_cast<void*>(tensor.data())),
                                  tensor.dtype(), tensor.extents());
}

}  // namespace heddle::host
