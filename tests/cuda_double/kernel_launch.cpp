#include "tests/cuda_double/kernel_launch.h"

#include <array>

#include "tests/cuda_double/cluster_run.h"
#include "tests/cuda_double/contexts.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/cuda_double/device_memory.h"
#include "tests/cuda_double/touches.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HEDDLE_FIBERS 1
#include <sanitizer/tsan_interface.h>
#endif
#endif

namespace heddle::cuda_double {
namespace {

// Atomics that order nothing: what the order of a launch's threads is made of.
Atomic<int64_t> launches{0};
Atomic<uint64_t> seed{1};

#if defined(HEDDLE_FIBERS)
// Threads for the thread sanitizer alone: it sees what the blocks of a launch do as done beside each other.
class Fibers {
 public:
  Fibers() {
    for (void*& each : all_) each = __tsan_create_fiber(0);
  }
  ~Fibers() {
    for (void* each : all_) __tsan_destroy_fiber(each);
  }
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;
  void* of(unsigned block) const { return all_[block % 2]; }

 private:
  std::array<void*, 2> all_;
};
#endif

}  // namespace

void set_seed(uint64_t from) { seed.store_relaxed(from); }

uint64_t take_launch_numbers(size_t count) {
  return static_cast<uint64_t>(launches.add_relaxed(static_cast<int64_t>(count)));
}

bool KernelLaunch::take(const cuda::KernelNode& from) {
  const auto* const loaded = static_cast<const LoadedKernel*>(from.function);
  if (loaded == nullptr || from.params == nullptr || from.extra != nullptr) return false;
  kernel_ = loaded->kernel;
  device_ = loaded->device;
  require_current(device_, kernel_->name, "the kernel is not of the current context's module");
  if (from.grid_x == 0 || from.grid_y != 1 || from.grid_z != 1 || from.block_x == 0 || from.block_y != 1 ||
      from.block_z != 1 || from.block_x > static_cast<unsigned>(kernel_->most_threads) ||
      from.grid_x % static_cast<unsigned>(kernel_->cluster) != 0 || from.shared_bytes > 48 * 1024)
    return false;
  blocks_ = from.grid_x;
  threads_ = from.block_x;
  shared_bytes_ = from.shared_bytes;
  const auto* const bytes = static_cast<const std::byte*>(from.params[0]);
  params_.assign(bytes, bytes + kernel_->params_bytes);
  return true;
}

void KernelLaunch::run_one(unsigned index, uint64_t order) const {
  const ClusterShape shape{index * kernel_->cluster,   blocks_,       kernel_->cluster,
                           static_cast<int>(threads_), shared_bytes_, order + index};
  const char* const wrong =
      run_cluster(shape, [&](cuda::HostBlock& block) { kernel_->run(params_.data(), block); });
  if (wrong != nullptr) stop(kernel_->name, wrong);
}

void KernelLaunch::run_first(unsigned index, uint64_t order) const {
  const KernelWatch watch(kernel_->name, device_);
  run_one(index, order);
}

#if defined(HEDDLE_FIBERS)
// Where the other fiber's stack does not reach: both are on the stream's thread.
__attribute__((noinline)) void KernelLaunch::run_apart(unsigned index, uint64_t order) const {
  std::byte stack_of_the_other[size_t{128} << 10];
  asm volatile("" : : "r"(stack_of_the_other) : "memory");  // or it would be left out
  run_one(index, order);
}

// What a fiber does, and what the stream's thread does between, is ordered by these alone. Both stay in this
// function: the sanitizer keeps a call stack for each.
void KernelLaunch::run_in_fibers(unsigned turned, unsigned last, uint64_t order) const {
  static thread_local const Fibers fibers;
  char begun = 0, over = 0;
  void* const stream = __tsan_get_current_fiber();
  __tsan_release(&begun);
  for (unsigned i = 0; i <= last; ++i) {
    const unsigned index = turned == 0 ? i : last - i;
    void* const fiber = fibers.of(i);
    __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync);
    __tsan_acquire(&begun);
    if (i % 2 != 0) {
      run_apart(index, order);
    } else if (i == 0) {
      run_first(index, order);
    } else {
      run_one(index, order);
    }
    __tsan_release(&over);
    __tsan_switch_to_fiber(stream, __tsan_switch_to_fiber_no_sync);
  }
  __tsan_acquire(&over);
}
#endif

// Forwards or backwards: what a block does is not to depend on those before it.
void KernelLaunch::run(uint64_t number) const {
  const uint64_t order = seed.load_relaxed() * 0x9e3779b97f4a7c15u + number;
  const unsigned last = blocks_ / static_cast<unsigned>(kernel_->cluster) - 1,
                 turned = (order & 1) != 0 ? last : 0;
#if defined(HEDDLE_FIBERS)
  if (kernel_->cluster == 1) {  // else they wait for each other, which takes threads
    run_in_fibers(turned, last, order);
    return spend_time_of(*kernel_);
  }
#endif
  run_first(turned, order);
  for (unsigned i = 1; i <= last; ++i) run_one(turned == 0 ? i : last - i, order);
  spend_time_of(*kernel_);
}

}  // namespace heddle::cuda_double
