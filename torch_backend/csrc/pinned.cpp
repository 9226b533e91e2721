#include "pinned.h"

#include <c10/core/CPUAllocator.h>
#include <pthread.h>

#include <functional>
#include <map>
#include <mutex>

namespace heddle::torch_backend {
namespace {

class PinnedMemory;
PinnedMemory& memory();

class PinnedMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* const data = c10::GetDefaultCPUAllocator()->raw_allocate(bytes);
    if (data != nullptr) {
      const std::lock_guard lock(lock_);
      blocks_.emplace(data, bytes);
    }
    return {data, data, &drop, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &drop; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  bool holds(const void* data) const {
    const std::lock_guard lock(lock_);
    const auto after = blocks_.upper_bound(data);
    if (after == blocks_.begin()) return false;
    const auto& [begin, bytes] = *std::prev(after);
    return static_cast<const std::byte*>(data) < static_cast<const std::byte*>(begin) + bytes;
  }

 private:
  friend PinnedMemory& memory();
  static void drop(void* data);

  mutable std::mutex lock_;
  std::map<const void*, size_t, std::less<>> blocks_;
};

PinnedMemory& memory() {
  static PinnedMemory& made = *[] {
    // A child, such as a DataLoader's worker, frees what it has inherited.
    pthread_atfork([] { memory().lock_.lock(); }, [] { memory().lock_.unlock(); },
                   [] { memory().lock_.unlock(); });
    return new PinnedMemory;  // tensors may outlive every static
  }();
  return made;
}

void PinnedMemory::drop(void* data) {
  if (data == nullptr) return;
  {
    const std::lock_guard lock(memory().lock_);
    memory().blocks_.erase(data);
  }
  c10::GetDefaultCPUAllocator()->raw_deallocate(data);
}

}  // namespace

c10::Allocator& pinned_memory() { return memory(); }
bool is_pinned(const void* data) { return memory().holds(data); }

}  // namespace heddle::torch_backend
