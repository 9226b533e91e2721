// library_call.h: what a library of NVIDIA's computes in a program, and how it is chosen.
//
//   What       A LibraryCall is one step of a program. Its operands are a struct of addresses, which a run
//              fills in. Which way is the fastest is measured once, when a program is made.
//   Threads    Any.
//   Blocks     times_of(): for as long as the measurement takes, some milliseconds.
#pragma once

#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/atomic.h"
#include "drivers/cuda/driver/open_device.h"

namespace heddle::cuda {

class LibraryCall {
 public:
  virtual ~LibraryCall() = default;
  virtual const char* library() const = 0;  // its name
  virtual uint64_t workspace_bytes() const = 0;
  // Whether the addresses are aligned as the library needs them.
  virtual bool takes(const void* operands) const = 0;
  // Enqueues it; the device's context is current.
  virtual Status run(const void* operands, StreamHandle stream) const = 0;

 protected:
  LibraryCall() = default;
  LibraryCall(const LibraryCall&) = delete;
  LibraryCall& operator=(const LibraryCall&) = delete;
};

inline constexpr uint64_t kMostWorkspaceBytes = uint64_t{32} << 20;  // of a call

template <class Operands>
Operands operands_of(const void* bytes) {
  Operands operands;
  std::memcpy(&operands, bytes, sizeof operands);
  return operands;
}
inline void* pointer_to(uint64_t address) { return reinterpret_cast<void*>(address); }

// The same by kernels of ours, with a library's operands.
template <class Operands>
struct Rival {
  using Enqueue = std::function<Status(const Operands& operands, StreamHandle stream)>;
  Enqueue whole;
  Enqueue rest;                  // behind the library, where kernels of ours follow it
  uint64_t workspace_bytes = 0;  // that `whole` uses
  struct Other {
    std::string word;  // by which it is kept
    Enqueue whole;
    float gain = 1;  // as Measured of chosen_once.h has it
  };
  std::vector<Other> others = {};
};

// Libraries that fail while a program is made, though the device is well: kernels of ours do their part, and
// `warn` is told, once for each library.
class Trouble {
 public:
  explicit Trouble(std::function<void(const std::string&)> warn,
                   std::string_view what = "kernels of ours compute what a library of NVIDIA's should have")
      : warn_(std::move(warn)), what_(what) {}
  void tell(const Status& status) const;

 private:
  const std::function<void(const std::string&)> warn_;
  const std::string what_;
  mutable Atomic<bool> told_{false};  // exchanged once, by the thread that then warns
};

// Declared behind memory: that is let go once all work of the device's stream of allocations is over, also
// where a failure leaves some of it enqueued.
class Settled {
 public:
  explicit Settled(const OpenDevice& device) : device_(device) {}
  ~Settled() { device_.api.stream_synchronize(device_.stream); }
  Settled(const Settled&) = delete;
  Settled& operator=(const Settled&) = delete;

 private:
  const OpenDevice& device_;
};

// Enqueues zeros into the device's stream of allocations: what is measured with is not read before it is
// written.
Status clear(const OpenDevice& device, Address at, uint64_t bytes);

// How long the GPU takes for each of `ways` in the device's stream of allocations, several times in a row, in
// units of their own. How long the host takes to enqueue it does not count: graphs replay it.
Result<std::vector<float>> times_of(const OpenDevice& device, std::span<const std::function<Status()>> ways);

}  // namespace heddle::cuda
