// guard_bench.mm: what the guard adds to a call on an encoder.
//
//   Question  what does setBuffer:offset:atIndex: cost with and without the guard, on one thread, on N
//             threads with an encoder each, and on N threads that share one?
//   usage     guard_bench [THREADS [MILLISECONDS]], with the guard inserted or not
//   Read as   ns a call; the difference of two runs is the guard's cost. On T threads: elapsed time times the
//        cores
//             that the threads had, over all calls.
//   The calls are counted, and the encoder's state is what the last of them set.
#import <Metal/Metal.h>

#include "agx_guard.h"

#include <dlfcn.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Bench {
  id<MTLCommandQueue> queue;
  id<MTLFence> fence;
};

id<MTLComputeCommandEncoder> make_encoder(Bench& bench) {
  @autoreleasepool {
    return [[[bench.queue commandBuffer] computeCommandEncoder] retain];
  }
}

void finish(id<MTLComputeCommandEncoder> encoder) {
  @autoreleasepool {
    [encoder endEncoding];
    [encoder release];
  }
}

// Calls on the encoder until `stop`; returns how many.
long call(id<MTLComputeCommandEncoder> encoder, const std::atomic<bool>& stop) {
  long calls = 0;
  while (!stop.load(std::memory_order_relaxed)) {
    for (int i = 0; i < 100; ++i) [encoder setThreadgroupMemoryLength:16 atIndex:NSUInteger(i & 1)];
    calls += 100;
  }
  return calls;
}

double measure(Bench& bench, int threads, bool shared, int ms) {
  std::vector<id<MTLComputeCommandEncoder>> encoders;
  for (int i = 0; i < (shared ? 1 : threads); ++i) encoders.push_back(make_encoder(bench));
  std::atomic<bool> stop{false};
  std::vector<long> calls(static_cast<size_t>(threads));
  std::vector<std::thread> running;
  const Clock::time_point start = Clock::now();
  for (size_t i = 0; i < size_t(threads); ++i) {
    running.emplace_back([&, i] { calls[i] = call(encoders[shared ? 0 : i], stop); });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  stop = true;
  for (std::thread& thread : running) thread.join();
  const double elapsed = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
  for (const id<MTLComputeCommandEncoder> encoder : encoders) finish(encoder);
  long all = 0;
  for (const long some : calls) all += some;
  const int cores = std::min<int>(threads, int(std::thread::hardware_concurrency()));
  return elapsed * cores / double(all);
}

double median(Bench& bench, int threads, bool shared, int ms) {
  std::vector<double> runs;
  for (int i = 0; i < 7; ++i) runs.push_back(measure(bench, threads, shared, ms));
  std::sort(runs.begin(), runs.end());
  return runs[3];
}

}  // namespace

int main(int count, char** words) {
  const int threads = count > 1 ? atoi(words[1]) : 8;
  const int ms = count > 2 ? atoi(words[2]) : 100;
  @autoreleasepool {
    const id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    Bench bench{.queue = [device newCommandQueue], .fence = [device newFence]};
    const auto active = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "agx_guard_is_active"));
    printf("{\"guard\": %s, \"threads\": %d, \"alone_ns\": %.1f, \"own_ns\": %.1f, \"shared_ns\": %.1f}\n",
           active && active() ? "true" : "false", threads, median(bench, 1, false, ms),
           median(bench, threads, false, ms), median(bench, threads, true, ms));
  }
  return 0;
}
