// open_device.h: one GPU as all parts of the driver share it.
//
//   What       The table of functions, the primary context, the image of the kernels, the pool of memory and
//              the stream of allocations, and whether the device is lost.
//   Threads    Any.
//   Blocks     Current: never. open(): as long as CUDA needs to make a context.
//   Lifetime   Queues, memory, programs and timelines hold a Ref; the context is released with the last one.
#pragma once

#include <string>
#include <vector>

#include "base/first_failure.h"
#include "base/fork.h"
#include "drivers/cuda/driver/driver_api.h"
#include "drivers/cuda/driver/kernels.h"

namespace heddle::cuda {

struct OpenDevice {
  ~OpenDevice();
  OpenDevice(const DriverApi& functions, DeviceNumber device) : api(functions), number(device) {}
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;

  static Result<int> count(const DriverApi& api);  // that the driver knows
  static Result<Ref<const OpenDevice>> open(const DriverApi& api, int ordinal, const void* image);

  // False in a forked child, where CUDA does nothing: what is destroyed there is left to the parent.
  bool is_ours() const { return fork_generation() == generation; }
  // What a call of the driver said. An error by which CUDA gives the device up is the device's from then on.
  Status check(Code code, std::string_view what) const;
  // The same of a question about work in flight. Any error is the device's end: nobody would tell when that
  // work is over.
  Status check_work(Code code, std::string_view what) const;

  // Between two kernels of so few blocks each the second may begin early (graph_builder.h). Code of this
  // source that has clusters has what lets kernels follow each other, too.
  bool begins_early(unsigned blocks) const {
    return blocks <= static_cast<unsigned>(multiprocessors) && kernels.clusters() &&
           api.graph_add_edges != nullptr;
  }

  std::string identity() const;  // of what decides how fast things are

  const DriverApi& api;
  const DeviceNumber number;
  std::string name;
  Context context = nullptr;
  StreamHandle stream = nullptr;  // of allocations: their order is this stream's
  MemoryPool pool = nullptr;
  Kernels kernels;
  int multiprocessors = 1, compute_major = 0, compute_minor = 0, driver_version = 0;
  uint64_t memory_bytes = 0;
  const uint32_t generation = fork_generation();
  mutable FirstFailure lost;
  mutable Guarded<bool, Rank::kModel> measuring{false};  // a thread times work of the stream above
  // Beside the kernels' image; unloaded with the device, when no graph can name what is in them.
  mutable Guarded<std::vector<ModuleHandle>, Rank::kAllocator> modules;
};

// The device's context is the thread's while this lives, and captures of others are not disturbed.
class Current {
 public:
  explicit Current(const OpenDevice& device);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const DriverApi& api_;
  const bool pushed_;  // not where the context is gone: another library's would be popped
  int capture_mode_ = kRelaxedCapture;
};

}  // namespace heddle::cuda
