#include "drivers/cuda/libraries/library_call.h"

#include "drivers/cuda/strides.h"

namespace heddle::cuda {
namespace {

constexpr int kTimedRuns = 10, kRounds = 2;

// One measurement at a time, or each would measure the other's work.
class Turn {
 public:
  explicit Turn(const OpenDevice& device) : device_(device) {
    auto measuring = device_.measuring.lock();
    measuring.wait([&] { return !*measuring; });
    *measuring = true;
  }
  ~Turn() {
    *device_.measuring.lock() = false;
    device_.measuring.notify_one();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  const OpenDevice& device_;
};

}  // namespace

void Trouble::tell(const Status& status) const {
  if (told_.load_acquire() || told_.exchange_acq_rel(true)) return;
  warn_(text("kernels of ours compute what a library of NVIDIA's should have: ", status.message()));
}

Status clear(const OpenDevice& device, Address at, uint64_t bytes) {
  const auto count = static_cast<int64_t>(bytes);
  MoveParams params = flat_move(count);
  params.to = at;
  const Kernel* const kernel = device.kernels.move_of(1);
  void* pointers[] = {&params};
  return device.check(device.api.launch(kernel->function, blocks_for(count, device.multiprocessors), 1, 1,
                                        kThreads, 1, 1, 0, device.stream, pointers, nullptr),
                      kernel->name);
}

Result<size_t> fastest(const OpenDevice& device, const Clock& clock,
                       std::span<const std::function<Status()>> ways) {
  const Turn turn(device);
  const auto wait = [&] {
    return device.check(device.api.stream_synchronize(device.stream), "a measurement of libraries");
  };
  for (const auto& way : ways) HEDDLE_TRY(way());
  HEDDLE_TRY(wait());
  size_t best = 0;
  Duration least = Duration::max();
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < ways.size(); ++i) {
      const TimePoint begin = clock.now();
      for (int run = 0; run < kTimedRuns; ++run) HEDDLE_TRY(ways[i]());
      HEDDLE_TRY(wait());
      const Duration time = clock.now() - begin;
      if (time > least || (time == least && i < best)) continue;
      least = time;
      best = i;
    }
  }
  return best;
}

}  // namespace heddle::cuda
