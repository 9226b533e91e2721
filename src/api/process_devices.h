// process_devices.h: the devices of the process, by name: one Device each, made on first use.
//
//   What       Device("host") everywhere in a process is the same device. configure() chooses its options
//              before that first use.
//   Exit       exit() closes all devices: calls get `unavailable`, running ones are waited for (at most
//              kExitWait). The table itself is never destroyed, since threads may still ask it.
//   Threads    Any.
//   Blocks     get(), while a driver starts.
#pragma once

#include <heddle/heddle.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"

namespace heddle::process_devices {

Device get(std::string_view name);
Device open(std::string_view name, const DeviceOptions& options);
// The same with a driver that the caller has made: for tests.
Device adopt(std::string_view name, Ref<device::Device> driver, const DeviceOptions& options);
void configure(std::string_view name, const DeviceOptions& options);
int count(std::string_view kind);                   // how many there are
std::vector<std::string> names();                   // whose drivers find what they need on this machine
std::vector<DeviceFact> missing();                  // the others of this build, and what each misses
std::vector<Device> living();                       // that are open, in the order in which they were opened
std::optional<Device> of_maker(const void* maker);  // the opened device whose memory names it; see device.h
std::string default_name();                         // HEDDLE_DEVICE, else metal on a Mac and host elsewhere

}  // namespace heddle::process_devices
