// memory.h: memory of one GPU, and pinned memory of the host that it can read and write.
//
//   Threads    Any.
//   Blocks     allocate(): as long as CUDA needs; device memory comes from a pool of the driver's own.
//   Errors     exhausted says what was asked for, how much is free and how much there is; before, the pool
//              gives back what it holds and is asked once more.
#pragma once

#include <memory>

#include "device/buffer.h"
#include "drivers/cuda/driver/open_device.h"

namespace heddle::cuda {

Result<std::unique_ptr<device::Memory>> allocate(const Ref<const OpenDevice>& device, uint64_t bytes,
                                                 device::MemoryKind kind);

// Another library's, which `memory.keep` holds. invalid: it is not this GPU's.
Result<std::unique_ptr<device::Memory>> import_memory(const Ref<const OpenDevice>& device,
                                                      const device::ForeignMemory& memory);

// A few bytes of pinned memory of their own: a timeline's word, a submission's flags.
class Pinned {
 public:
  static Result<Ref<Pinned>> make(const Ref<const OpenDevice>& device, uint64_t bytes);
  ~Pinned();
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  void* host() const { return at_; }
  Address address() const { return reinterpret_cast<Address>(at_); }
  uint64_t bytes() const { return bytes_; }

 private:
  Pinned(Ref<const OpenDevice> device, void* at, uint64_t bytes)
      : device_(std::move(device)), at_(at), bytes_(bytes) {}
  const Ref<const OpenDevice> device_;
  void* const at_;
  const uint64_t bytes_;
};

}  // namespace heddle::cuda
