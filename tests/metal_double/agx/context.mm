#include "context.h"

#import <Foundation/Foundation.h>

#include <cstring>
#include <mutex>

namespace agx_double {

std::atomic<uint64_t> kernels, command_buffers;
std::atomic<int64_t> live_encoders, live_command_buffers;

namespace {

constexpr int kPooled = 8;
std::atomic<uint64_t> options[AGX_DOUBLE_OPTIONS] = {0, 0, 64};

std::mutex pool_lock;
Context* pool[kPooled];
int pooled = 0;

Context* make() {
  auto* context = static_cast<Context*>(calloc(1, sizeof(Context)));
  context->kept = new std::vector<std::shared_ptr<void>>;
  context->commands = new std::vector<Work>;
  return context;
}

}  // namespace

Context* take() {
  Context* context = nullptr;
  {
    std::lock_guard hold(pool_lock);
    if (pooled > 0) context = pool[--pooled];
  }
  if (!context) context = make();
  memset(context->arguments, 0, sizeof context->arguments);
  context->enqueue_state = 1;
  context->has_pipeline = false;
  return context;
}

void give_back(Context** pointer) {
  Context* context = *pointer;
  if (!context) return;
  const bool patched = option(AGX_DOUBLE_PATCH) != 0;
  std::vector<std::shared_ptr<void>> released;
  pool_lock.lock();
  released.swap(*context->kept);
  if (patched) *pointer = nullptr;
  if (pooled < kPooled) {
    pool[pooled++] = context;
    context = nullptr;
  }
  pool_lock.unlock();
  if (context && !patched) {
    delete context->commands;
    delete context->kept;
    free(context);
  }
  if (!patched) *pointer = nullptr;  // the fault: cleared after the unlock
}

std::shared_ptr<void> keep(const void* object) {
  id owned = [(id)object retain];
  return {(void*)owned, [](void* kept) { [(id)kept release]; }};
}

uint64_t option(agx_double_option name) { return options[name].load(std::memory_order_relaxed); }

// For programs that do not know the double.
__attribute__((constructor)) static void read_environment() {
  if (getenv("AGX_DOUBLE_PATCH")) options[AGX_DOUBLE_PATCH] = 1;
}

}  // namespace agx_double

extern "C" __attribute__((visibility("default"))) void agx_driver_set(agx_double_option option,
                                                                      uint64_t value) {
  agx_double::options[option].store(value, std::memory_order_relaxed);
}

extern "C" __attribute__((visibility("default"))) void agx_driver_read(agx_double_counts* counts) {
  counts->kernels = agx_double::kernels;
  counts->command_buffers = agx_double::command_buffers;
  counts->live_encoders = agx_double::live_encoders;
  counts->live_command_buffers = agx_double::live_command_buffers;
}
