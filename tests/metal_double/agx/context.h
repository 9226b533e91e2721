// context.h: what an AGX encoder's _impl points to, the pool it comes from, and the race in giving it back.
//
//   Layout    Fields lie where the published crashes read them: 0x98, 0x5c8, 0x5f4.
//   Race      give_back() returns the context to the pool under the pool's lock and clears the encoder's
//             pointer only after the unlock. Encoder methods take no lock at all. Both are as published.
#pragma once

#include "agx_double.h"

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace agx_double {

using Work = std::function<void()>;

struct Context {
  void* arguments[16];
  char reserved_0[0x98 - 16 * sizeof(void*)];
  std::vector<std::shared_ptr<void>>* kept;  // 0x98: what the commands refer to
  char reserved_1[0x5c8 - 0x98 - sizeof(void*)];
  std::vector<Work>* commands;  // 0x5c8
  char reserved_2[0x5f4 - 0x5c8 - sizeof(void*)];
  int enqueue_state;  // 0x5f4
  bool has_pipeline;
};
static_assert(offsetof(Context, kept) == 0x98 && offsetof(Context, commands) == 0x5c8 &&
              offsetof(Context, enqueue_state) == 0x5f4);

Context* take();
void give_back(Context** pointer);

// Keeps an Objective-C object until the last copy of the result is gone.
std::shared_ptr<void> keep(const void* object);

uint64_t option(agx_double_option name);

extern std::atomic<uint64_t> kernels, command_buffers;
extern std::atomic<int64_t> live_encoders, live_command_buffers;

}  // namespace agx_double
