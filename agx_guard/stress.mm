// stress.mm: encoders shared between threads, as a framework's stream shares its current encoder.
//
//   usage     stress null|raw STREAMS MILLISECONDS
//   null      a user holds a reference of its own while it encodes, so only what is behind the encoder can
//             vanish
//   raw       a user holds a bare pointer, as frameworks hand out, so the encoder itself can vanish
//   Streams   each has a thread that makes encoders, ends them and commits, and one that encodes on whatever
//             encoder is current, compute and blit in turn. Freed memory is filled, as a busy process would.
//   Exit      0 all work that was sent has run; 1 not; 128 + signal after a crash, with a line "SIGNAL n at
//             address".
//
// The same source runs on macOS and, on Linux, on the double, whose one kernel adds 1 to the int in buffer 0.
#import <Metal/Metal.h>

#include "agx_guard.h"

#include <dlfcn.h>
#include <objc/runtime.h>
#include <unistd.h>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

void crash(int signal, siginfo_t* info, void*) {
  char line[96];
  const int size = snprintf(line, sizeof line, "SIGNAL %d at %p\n", signal, info->si_addr);
  (void)!write(1, line, size_t(size));
  _exit(128 + signal);
}

void report_crashes() {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGILL}) sigaction(signal, &action, nullptr);
}

enum Target { kDispatched, kFilled, kTargets };

struct Stream {
  id<MTLDevice> device;
  id<MTLComputePipelineState> pipeline;
  id<MTLCommandQueue> queue;
  id<MTLBuffer> target;
  id<MTLFence> fence;
  bool raw;
  std::mutex lock;
  std::atomic<uintptr_t> current{0};  // an encoder; the low bit is set for a blit encoder
  std::atomic<bool> stop{false};
  std::array<long, kTargets> sent{};  // the user's
  long encoders = 0;
  std::deque<std::vector<char>> filling;
};

// Compute: adds 1 to int 0. Blit: fills a byte of 1, which the double adds to int 1; on a Mac only its
// absence shows.
void encode(Stream& stream, uintptr_t current) {
  const id object = (id)(void*)(current & ~uintptr_t(1));
  if (current & 1) {
    const id<MTLBlitCommandEncoder> blit = object;
    [blit waitForFence:stream.fence];
    [blit fillBuffer:stream.target range:NSMakeRange(sizeof(int), 1) value:1];
    stream.sent[kFilled]++;
    [blit updateFence:stream.fence];
    return;
  }
  const id<MTLComputeCommandEncoder> compute = object;
  [compute setComputePipelineState:stream.pipeline];
  [compute setBuffer:stream.target offset:0 atIndex:0];
  [compute dispatchThreads:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
  stream.sent[kDispatched]++;
  [compute updateFence:stream.fence];  // a selector that both kinds have
}

void use_current(Stream& stream) {
  while (!stream.stop) {
    @autoreleasepool {
      uintptr_t current = 0;
      if (stream.raw) {
        current = stream.current;
      } else {
        const std::lock_guard hold(stream.lock);
        current = stream.current;
        [(id)(void*)(current & ~uintptr_t(1)) retain];
      }
      if (!current) {
        std::this_thread::yield();
        continue;
      }
      if (stream.raw && stream.sent[kDispatched] % 3 == 0) std::this_thread::yield();
      encode(stream, current);
      if (!stream.raw) [(id)(void*)(current & ~uintptr_t(1)) release];
    }
  }
}

// Memory that encoders leave behind is used by someone else soon, in any process that does more than this
// one.
void fill_freed_memory(Stream& stream, size_t size) {
  for (int i = 0; i < 4; ++i) stream.filling.emplace_back(size + 16, char(0x55));
  while (stream.filling.size() > 64) stream.filling.pop_front();
}

void make_and_end(Stream& stream, Clock::time_point end) {
  while (Clock::now() < end) {
    @autoreleasepool {
      const id<MTLCommandBuffer> buffer = [stream.queue commandBuffer];
      const bool blit = stream.encoders % 4 == 3;
      id<MTLCommandEncoder> encoder = nil;
      @autoreleasepool {
        encoder = [blit ? (id)[buffer blitCommandEncoder] : (id)[buffer computeCommandEncoder] retain];
      }
      const size_t size = class_getInstanceSize(object_getClass(encoder));
      stream.encoders++;
      stream.current = uintptr_t((void*)encoder) | uintptr_t(blit);
      for (int i = 0; i < 5; ++i) std::this_thread::yield();
      {
        const std::lock_guard hold(stream.lock);
        stream.current = 0;
      }
      [encoder endEncoding];
      [encoder release];
      [buffer commit];
      [buffer waitUntilCompleted];
      fill_freed_memory(stream, size);
    }
  }
  stream.stop = true;
}

void drain(Stream& stream) {
  @autoreleasepool {
    const id<MTLCommandBuffer> last = [stream.queue commandBuffer];
    [last commit];
    [last waitUntilCompleted];
  }
}

void run(Stream& stream, Clock::time_point end) {
  std::thread user([&] { use_current(stream); });
  make_and_end(stream, end);
  user.join();
  drain(stream);
}

id<MTLComputePipelineState> make_pipeline(id<MTLDevice> device) {
#ifdef __APPLE__
  NSError* error = nil;
  NSString* source = @"#include <metal_stdlib>\nusing namespace metal;\n"
                      "kernel void add_one(device int* y [[buffer(0)]]) { y[0] += 1; }";
  id<MTLLibrary> library = [device newLibraryWithSource:source options:nil error:&error];
  if (!library) {
    fprintf(stderr, "%s\n", [[error localizedDescription] UTF8String]);
    exit(2);
  }
  return [device newComputePipelineStateWithFunction:[library newFunctionWithName:@"add_one"] error:&error];
#else
  return [device newComputePipelineStateWithFunction:(id)device
                                               error:nullptr];  // the double has one kernel and asks for none
#endif
}

int finish(std::vector<Stream>& streams) {
  long sent = 0, executed = 0, encoders = 0;
  for (Stream& stream : streams) {
    const int* const cells = static_cast<const int*>([stream.target contents]);
    encoders += stream.encoders;
    sent += stream.sent[kDispatched];
    executed += cells[kDispatched];
#ifndef __APPLE__
    sent += stream.sent[kFilled];
    executed += cells[kFilled];
#endif
  }
  const auto read = reinterpret_cast<decltype(&agx_guard_read)>(dlsym(RTLD_DEFAULT, "agx_guard_read"));
  agx_guard_statistics guard{};
  if (read) read(&guard, sizeof guard);
  printf("encoders=%ld sent=%ld executed=%ld late=%llu carried=%llu refused=%llu guard=%s %s\n", encoders,
         sent, executed, (unsigned long long)guard.late_calls, (unsigned long long)guard.late_carried,
         (unsigned long long)guard.late_refused, guard.active ? "on" : "off",
         sent == executed ? "ADDS UP" : "LOST WORK");
  return sent != executed;
}

}  // namespace

int main(int count, char** words) {
  if (count < 2 || (strcmp(words[1], "null") && strcmp(words[1], "raw"))) {
    fprintf(stderr, "usage: stress null|raw [STREAMS [MILLISECONDS]]\n");
    return 2;
  }
  if (!getenv("STRESS_NO_HANDLER")) report_crashes();
  const int how_many = count > 2 ? atoi(words[2]) : 2;
  const Clock::time_point end = Clock::now() + std::chrono::milliseconds(count > 3 ? atoi(words[3]) : 500);
  @autoreleasepool {
    const id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    const id<MTLComputePipelineState> pipeline = make_pipeline(device);
    std::vector<Stream> streams(static_cast<size_t>(how_many));
    std::vector<std::thread> threads;
    for (Stream& stream : streams) {
      stream.device = device;
      stream.pipeline = pipeline;
      stream.queue = [device newCommandQueue];
      stream.target = [device newBufferWithLength:64 options:MTLResourceStorageModeShared];
      stream.fence = [device newFence];
      stream.raw = !strcmp(words[1], "raw");
      threads.emplace_back([&stream, end] { run(stream, end); });
    }
    for (std::thread& thread : threads) thread.join();
    return finish(streams);
  }
}
