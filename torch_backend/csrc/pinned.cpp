#include "pinned.h"

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "device.h"
#include "process_end.h"
#include "storage.h"

namespace heddle::torch_backend {
namespace {

class PinnedMemory;
PinnedMemory& memory();

class PinnedMemory final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* const data = bytes == 0 ? nullptr : translated([&] { return take(bytes); });
    return {data, data, &drop, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &drop; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  // Heddle's copies are known; this covers kernels it does not see.
  bool record_event(void* data, void* /*context*/, c10::Stream stream) override {
    std::optional<Tensor> block;
    {
      const std::lock_guard lock(lock_);
      if (const auto found = find(data); found != blocks_.end()) block = found->second.bytes;
    }
    if (block) translated([&] { block->record_stream(*NamedStream(stream)); });
    return block.has_value();
  }
  // What is not in use is in the cache of the device that has pinned it.
  void empty_cache() override {
    const FreeGil without_gil;  // as in storage.cpp
    translated([] { device_at(current_device()).empty_cache(); });
  }
  at::HostStats get_stats() override {
    const std::lock_guard lock(lock_);
    at::HostStats stats;
    stats.active_requests = stats.allocations = requests_;
    stats.active_bytes = stats.allocated_bytes = bytes_;
    stats.num_host_alloc = requests_.allocated;
    stats.num_host_free = requests_.freed;
    return stats;
  }
  void reset_accumulated_stats() override {
    const std::lock_guard lock(lock_);
    requests_.reset_accumulated(), bytes_.reset_accumulated();
  }
  void reset_peak_stats() override {
    const std::lock_guard lock(lock_);
    requests_.reset_peak(), bytes_.reset_peak();
  }

  bool holds(const void* data) {
    const std::lock_guard lock(lock_);
    return find(data) != blocks_.end();
  }
  struct Found {
    Tensor block;
    int64_t offset;
    bool had_writer;
  };
  std::optional<Found> find_for(const void* data, CopySide side) {
    if (count_.load(std::memory_order_relaxed) == 0) return std::nullopt;
    const std::lock_guard lock(lock_);
    const auto found = find(data);
    if (found == blocks_.end()) return std::nullopt;
    auto& [begin, block] = *found;
    const bool had_writer = std::exchange(block.has_writer, side == CopySide::target);
    return Found{block.bytes, static_cast<const std::byte*>(data) - begin, had_writer};
  }

 private:
  friend PinnedMemory& memory();
  struct Block {
    Tensor bytes;
    int64_t size;
    bool has_writer = false;  // the latest copy went to it
  };
  using Blocks = std::map<const std::byte*, Block, std::less<>>;

  Blocks::iterator find(const void* data) {
    const auto* const at = static_cast<const std::byte*>(data);
    auto found = blocks_.upper_bound(at);
    if (found == blocks_.begin()) return blocks_.end();
    --found;
    return at - found->first < found->second.size ? found : blocks_.end();
  }

  void* take(size_t bytes) {
    const auto size = static_cast<int64_t>(bytes);
    const FreeGil without_gil;  // as in storage.cpp
    Tensor block = Tensor::pinned(DType::u8, {size}, device_at(current_device()));
    void* const data = block.mutable_data();
    const std::lock_guard lock(lock_);
    blocks_.emplace(static_cast<const std::byte*>(data), Block{std::move(block), size});
    requests_.increase(1), bytes_.increase(bytes);
    count_.store(blocks_.size(), std::memory_order_relaxed);
    return data;
  }
  static void drop(void* data) {
    Blocks::node_type dropped;  // let go of outside the lock
    const std::lock_guard lock(memory().lock_);
    dropped = memory().blocks_.extract(static_cast<const std::byte*>(data));
    memory().requests_.decrease(1), memory().bytes_.decrease(static_cast<size_t>(dropped.mapped().size));
    memory().count_.store(memory().blocks_.size(), std::memory_order_relaxed);
  }

  std::mutex lock_;
  Blocks blocks_;
  at::Stat requests_, bytes_;
  std::atomic<size_t> count_{0};  // of blocks: while there is none, a copy takes no lock
};

PinnedMemory& memory() {
  static PinnedMemory& made = *[] {
    // A child, such as a DataLoader's worker, drops what it has inherited. The blocks are its parent's: the
    // references made here are never given up.
    pthread_atfork([] { memory().lock_.lock(); }, [] { memory().lock_.unlock(); },
                   [] {
                     if (!memory().blocks_.empty()) new PinnedMemory::Blocks(memory().blocks_);
                     memory().lock_.unlock();
                   });
    return new PinnedMemory;  // tensors may outlive every static
  }();
  return made;
}

}  // namespace

at::HostAllocator& pinned_memory() { return memory(); }
bool is_pinned(const void* data) { return memory().holds(data); }

std::optional<Tensor> pinned_view(const at::TensorBase& tensor, CopySide side) {
  if (!tensor.device().is_cpu() || tensor.numel() == 0) return std::nullopt;
  auto found = memory().find_for(tensor.const_data_ptr(), side);
  if (!found) return std::nullopt;
  // Since that copy the CPU may have written the memory: the run whose mistake it brought is not to blame.
  if (side == CopySide::source && found->had_writer) found->block.mutable_data();
  const c10::IntArrayRef sizes = tensor.sizes(), strides = tensor.strides();
  return found->block.view(to_heddle(tensor.scalar_type()), {sizes.begin(), sizes.end()},
                           {strides.begin(), strides.end()}, found->offset);
}

}  // namespace heddle::torch_backend
