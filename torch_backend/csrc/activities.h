// activities.h: what the device did, for torch.profiler.
//
//   What       An Activity stands around what one operator gives to a stream. While a profile is taken with
//              ProfilerActivity.PrivateUse1, it records an event before and one after; when the profile ends
//              these become PyTorch's device activities, with the times that the work itself took, beside the
//              operator that they belong to. Otherwise it is one look at a flag.
//   Times      From when the work before it on its stream was over, or it was given if that is later, to its
//              end: events say so (heddle.h, Event).
//   Source     PyTorch's PrivateUse1ProfilerRegistry and Kineto's IActivityProfiler. A PyTorch without that
//              registry (before 2.13) takes no such activities.
//   Threads    Any.
//   Blocks     Only the end of a profile, until what it recorded is over. What failed has no activity; the
//              profile names it among its errors.
#pragma once

#include <c10/core/Device.h>
#include <heddle/heddle.h>

#include <memory>
#include <string_view>

namespace heddle::torch_backend {

class Recording;

enum class Doing : uint8_t { operation, copy };

class Activity {
 public:
  // The name outlives it.
  Activity(std::string_view name, c10::DeviceIndex index, Doing doing = Doing::operation);
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;
  ~Activity();

 private:
  std::string_view name_;
  c10::DeviceIndex index_;
  Doing doing_;
  std::shared_ptr<Recording> recording_;  // null: no profile is taken
  Event before_;
};

void register_activities();  // once a process, before the first profile

}  // namespace heddle::torch_backend
