// driver_fixture.h: the drivers under test, and what each says it cannot do.
//
//   What       DRIVER_TEST(name) is written once and runs for every driver of drivers(), with operands in
//              each kind of memory that it has.
//              DRIVER_CANNOT(driver, name, reason) exempts one; the test then has to end with `unsupported`:
//              an exemption that has gone stale fails, as does one that names nothing.
//   Threads    Tests run one after the other; a test may make threads.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <span>
#include <string_view>

#include "device/device.h"

namespace heddle::conformance {

// An event of a driver's vendor, from the stranger's side.
struct VendorEvent {
  device::ForeignEvent event;
  std::function<void()> reach;
  std::function<bool()> reached;
};
#ifdef HEDDLE_METAL
VendorEvent make_metal_event();
#endif

struct Driver {
  const char* name;
  Result<Ref<device::Device>> (*make)();
  VendorEvent (*make_event)() = nullptr;  // null: the vendor has none
};
std::span<const Driver> drivers();  // all, or the one that HEDDLE_TEST_DRIVER names

using Test = Status (*)(device::Device& device, const Driver& driver);

// With operands in each kind of memory that the device has.
void for_each_kind(const device::Device& device, const std::function<void()>& body);
void run_for_each_driver(std::string_view test, Test run);

// Tests of one operator are named "op " + its name, those of one element type "type " + its name.
bool cannot(std::string_view driver, std::string_view test);
void check_exemptions();  // each names a driver and a test

struct Registered {
  explicit Registered(std::string_view test);
};

// A property that fails is a CHECK or REQUIRE; the Status says whether the driver can do it at all.
#define DRIVER_TEST(function, title)                             \
  static Status function(device::Device&, const Driver&);        \
  static const Registered registered_##function(#function);      \
  TEST_CASE(title) { run_for_each_driver(#function, function); } \
  static Status function([[maybe_unused]] device::Device& device, [[maybe_unused]] const Driver& driver)

}  // namespace heddle::conformance
