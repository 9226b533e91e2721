// guard_bench.mm: what the guard adds to a call on an encoder.
//
//   Question  what does setBuffer:offset:atIndex: cost with and without the guard, on one thread, on N
//             threads with an encoder each, and on N threads that share one?
//   usage     guard_bench [THREADS [MILLISECONDS]], with the guard inserted or not
//   Read as   ns of processor time a call (all threads, over all calls), so that a busy machine does not
//             count; elapsed_ns beside it: elapsed time times the cores that the threads had. The
//             difference of two runs is the guard's cost.
//   The calls are counted, and the encoder's state is what the last of them set.
#import <Metal/Metal.h>

#include "agx_guard.h"

#include <dlfcn.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
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

struct Cost {
  double cpu_ns, elapsed_ns;
};

double cpu_time_ns() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return double(now.tv_sec) * 1e9 + double(now.tv_nsec);
}

Cost measure(Bench& bench, int threads, bool shared, int ms) {
  std::vector<id<MTLComputeCommandEncoder>> encoders;
  for (int i = 0; i < (shared ? 1 : threads); ++i) encoders.push_back(make_encoder(bench));
  std::atomic<bool> stop{false};
  std::vector<long> calls(static_cast<size_t>(threads));
  std::vector<std::thread> running;
  const Clock::time_point start = Clock::now();
  const double cpu_start = cpu_time_ns();
  for (size_t i = 0; i < size_t(threads); ++i) {
    running.emplace_back([&, i] { calls[i] = call(encoders[shared ? 0 : i], stop); });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  stop = true;
  for (std::thread& thread : running) thread.join();
  const double cpu = cpu_time_ns() - cpu_start;
  const double elapsed = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
  for (const id<MTLComputeCommandEncoder> encoder : encoders) finish(encoder);
  long all = 0;
  for (const long some : calls) all += some;
  const int cores = std::min<int>(threads, int(std::thread::hardware_concurrency()));
  return {cpu / double(all), elapsed * cores / double(all)};
}

// Of seven runs.
std::string median(Bench& bench, int threads, bool shared, int ms) {
  std::vector<double> cpu, elapsed;
  for (int i = 0; i < 7; ++i) {
    const Cost cost = measure(bench, threads, shared, ms);
    cpu.push_back(cost.cpu_ns);
    elapsed.push_back(cost.elapsed_ns);
  }
  std::sort(cpu.begin(), cpu.end());
  std::sort(elapsed.begin(), elapsed.end());
  char text[80];
  snprintf(text, sizeof text, "{\"cpu_ns\": %.1f, \"elapsed_ns\": %.1f}", cpu[3], elapsed[3]);
  return text;
}

}  // namespace

int main(int count, char** words) {
  const int threads = count > 1 ? atoi(words[1]) : 8;
  const int ms = count > 2 ? atoi(words[2]) : 100;
  @autoreleasepool {
    const id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    Bench bench{.queue = [device newCommandQueue], .fence = [device newFence]};
    const auto active = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "agx_guard_is_active"));
    printf("{\"guard\": %s, \"threads\": %d, \"alone\": %s, \"own\": %s, \"shared\": %s}\n",
           active && active() ? "true" : "false", threads, median(bench, 1, false, ms).c_str(),
           median(bench, threads, false, ms).c_str(), median(bench, threads, true, ms).c_str());
  }
  return 0;
}
