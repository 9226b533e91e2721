#include "drivers/cuda/memory.h"

namespace heddle::cuda {
namespace {

using device::MemoryKind;

// Every use of it is over. What CUDA says here helps nobody: the process ends, or the device is lost.
class DeviceMemory final : public device::Memory {
 public:
  DeviceMemory(Ref<const OpenDevice> device, Address at, uint64_t bytes)
      : Memory({device.get(), MemoryKind::device, nullptr, at, bytes}), device_(std::move(device)) {}
  ~DeviceMemory() override {
    if (!device_->is_ours()) return;
    const Current current(*device_);
    device_->api.free(address(), device_->stream);
  }

 private:
  const Ref<const OpenDevice> device_;
};

class StagingMemory final : public device::Memory {
 public:
  StagingMemory(const OpenDevice& device, Ref<Pinned> pinned, uint64_t bytes)
      : Memory({&device, MemoryKind::staging, pinned->host(), pinned->address(), bytes}),
        pinned_(std::move(pinned)) {}

 private:
  const Ref<Pinned> pinned_;
};

class LentMemory final : public device::Memory {
 public:
  LentMemory(Ref<const OpenDevice> device, const device::ForeignMemory& memory)
      : Memory({device.get(), MemoryKind::device, nullptr, memory.address, memory.bytes}),
        device_(std::move(device)),
        keep_(memory.keep) {}

 private:
  const Ref<const OpenDevice> device_;  // so that no later one has the address that is its name
  const Ref<const void> keep_;
};

Status no_memory(const OpenDevice& device, uint64_t bytes) {
  size_t free = 0, total = 0;
  HEDDLE_TRY(device.check(device.api.memory_info(&free, &total), "cuMemGetInfo"));
  return Status::exhausted(device.name, " has no ", bytes, " bytes of memory: ", free, " of ", total,
                           " are free, and other processes hold the rest of what Heddle does not");
}

Result<Address> device_bytes(const OpenDevice& device, uint64_t bytes) {
  const DriverApi& api = device.api;
  Address at = 0;
  Code code = api.allocate(&at, bytes, device.pool, device.stream);
  if (code == kOutOfMemory) {
    HEDDLE_TRY(device.check(api.pool_trim(device.pool, 0), "cuMemPoolTrimTo"));
    code = api.allocate(&at, bytes, device.pool, device.stream);
    if (code == kOutOfMemory) return no_memory(device, bytes);
  }
  HEDDLE_TRY(device.check(code, "cuMemAllocFromPoolAsync"));
  // From here on any stream may use it.
  HEDDLE_TRY(device.check(api.stream_synchronize(device.stream), "cuStreamSynchronize after an allocation"));
  return at;
}

}  // namespace

Result<std::unique_ptr<device::Memory>> allocate(const Ref<const OpenDevice>& device, uint64_t bytes,
                                                 MemoryKind kind) {
  const uint64_t asked = bytes == 0 ? 1 : bytes;
  if (kind == MemoryKind::staging) {
    HEDDLE_TRY_ASSIGN(Ref<Pinned> pinned, Pinned::make(device, asked));
    return std::unique_ptr<device::Memory>(
        std::make_unique<StagingMemory>(*device, std::move(pinned), bytes));
  }
  const Current current(*device);
  HEDDLE_TRY_ASSIGN(const Address at, device_bytes(*device, asked));
  return std::unique_ptr<device::Memory>(std::make_unique<DeviceMemory>(device, at, bytes));
}

Result<std::unique_ptr<device::Memory>> import_memory(const Ref<const OpenDevice>& device,
                                                      const device::ForeignMemory& memory) {
  const Current current(*device);
  unsigned type = 0;
  int ordinal = 0;
  const DriverApi& api = device->api;
  const bool known = api.pointer_attribute(&type, kMemoryType, memory.address) == kSuccess &&
                     api.pointer_attribute(&ordinal, kDeviceOrdinal, memory.address) == kSuccess;
  if (!known || type != kTypeOfDevice) {
    return Status::invalid(
        "there is no memory of a GPU at the address that was lent; memory of the host is "
        "borrowed, not lent");
  }
  if (ordinal != device->number) {
    return Status::invalid("the memory that was lent is on GPU ", ordinal, ", not on ", device->number);
  }
  return std::unique_ptr<device::Memory>(std::make_unique<LentMemory>(device, memory));
}

Result<Ref<Pinned>> Pinned::make(const Ref<const OpenDevice>& device, uint64_t bytes) {
  const Current current(*device);
  void* at = nullptr;
  const Code code = device->api.host_allocate(&at, bytes, kPortable | kDeviceMap);
  if (code == kOutOfMemory)
    return Status::exhausted("CUDA pins no ", bytes,
                             " bytes of the host's memory (ulimit -l, or all is taken)");
  HEDDLE_TRY(device->check(code, "cuMemHostAlloc"));
  return Ref<Pinned>(new Pinned(device, at, bytes));
}

Pinned::~Pinned() {
  if (!device_->is_ours()) return;
  const Current current(*device_);
  device_->api.host_free(at_);
}

}  // namespace heddle::cuda
