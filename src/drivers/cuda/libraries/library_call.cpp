#include "drivers/cuda/libraries/library_call.h"

#include <algorithm>
#include <limits>

#include "base/clock.h"
#include "drivers/cuda/kernels/pause.h"
#include "drivers/cuda/strides.h"

namespace heddle::cuda {
namespace {

constexpr int kTimedRuns = 10, kRounds = 2;
constexpr Duration kLongestPause = std::chrono::milliseconds(5);

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

// Times what is enqueued between begin() and end(), as the GPU runs it.
class Stopwatch {
 public:
  explicit Stopwatch(const OpenDevice& device) : device_(device) {}
  ~Stopwatch() {
    for (EventHandle each : {begin_, end_}) {
      if (each != nullptr) device_.api.event_destroy(each);
    }
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  Status make() {
    for (EventHandle* each : {&begin_, &end_})
      HEDDLE_TRY(device_.check(device_.api.event_create(each, 0), "cuEventCreate"));
    return {};
  }
  Status settle() const {
    return device_.check(device_.api.stream_synchronize(device_.stream), "a measurement of libraries");
  }
  // The GPU waits for `head_start`, in which the host enqueues what is timed. It ends by itself: what
  // enqueues may have to wait for somebody who waits for the stream.
  Status begin(Duration head_start) {
    Pause pause{static_cast<uint64_t>(head_start.count())};
    const Kernel* const kernel = device_.kernels.pause();
    void* pointers[] = {&pause};
    HEDDLE_TRY(device_.check(
        device_.api.launch(kernel->function, 1, 1, 1, 1, 1, 1, 0, device_.stream, pointers, nullptr),
        kernel->name));
    return device_.check(device_.api.event_record(begin_, device_.stream), "cuEventRecord");
  }
  Result<float> end() {  // milliseconds
    HEDDLE_TRY(device_.check(device_.api.event_record(end_, device_.stream), "cuEventRecord"));
    HEDDLE_TRY(settle());
    float time = 0;
    HEDDLE_TRY(device_.check(device_.api.event_elapsed(&time, begin_, end_), "cuEventElapsedTime"));
    return time;
  }

 private:
  const OpenDevice& device_;
  EventHandle begin_ = nullptr, end_ = nullptr;
};

}  // namespace

void Trouble::tell(const Status& status) const {
  if (told_.load_acquire() || told_.exchange_acq_rel(true)) return;
  warn_(text(what_, ": ", status.message()));
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

Result<std::vector<float>> times_of(const OpenDevice& device, std::span<const std::function<Status()>> ways) {
  const Turn turn(device);
  Stopwatch stopwatch(device);
  HEDDLE_TRY(stopwatch.make());
  for (const auto& way : ways) HEDDLE_TRY(way());  // loads what it needs
  HEDDLE_TRY(stopwatch.settle());
  Duration slowest{0};  // of the host, to enqueue one
  for (const auto& way : ways) {
    const TimePoint begin = Clock::real().now();
    HEDDLE_TRY(way());
    slowest = std::max(slowest, Clock::real().now() - begin);
  }
  HEDDLE_TRY(stopwatch.settle());
  const Duration head_start = std::min<Duration>(2 * kTimedRuns * slowest, kLongestPause);
  std::vector<float> least(ways.size(), std::numeric_limits<float>::max());
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < ways.size(); ++i) {
      HEDDLE_TRY(stopwatch.begin(head_start));
      for (int run = 0; run < kTimedRuns; ++run) HEDDLE_TRY(ways[i]());
      HEDDLE_TRY_ASSIGN(const float time, stopwatch.end());
      least[i] = std::min(least[i], time);
    }
  }
  return least;
}

}  // namespace heddle::cuda
