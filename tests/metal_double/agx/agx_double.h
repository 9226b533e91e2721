// agx_double.h: control of the double of Apple's GPU driver, the library behind Metal on Apple silicon.
//
//   What      A driver that is loaded when the first device is made (as macOS loads AGXMetalG16X.bundle),
//             with the class names of the real one and its documented race: -destroyImpl hands the encoder's
//             _impl back under a lock, drops the lock, and only then clears the pointer. Other threads read
//             it without the lock.
//   Kernel    There is one: y[0] += step * threads, y = buffer 0 and step = buffer or bytes 1 (1 when
//             unbound). Every other kind of encoder has a method that adds to an int in a buffer, so that
//             work can be counted.
//   Options   Set before the first encoder is made. The driver reads them.
//   Threads   Any thread may read the counters.
#pragma once

#include <cstdint>

extern "C" {

enum agx_double_option {
  // 0: AGXG16XFamilyComputeContext, 1: its _mtlnext subclass, 2: a class made at run time.
  AGX_DOUBLE_VARIANT,
  // 1: the published binary patch: clear before the unlock, and the second path frees nothing.
  // The environment can set it too.
  AGX_DOUBLE_PATCH,
  AGX_DOUBLE_LIMIT,  // command buffers of a queue that may be uncompleted, 64 as in Metal
  AGX_DOUBLE_OPTIONS,
};
void agx_double_set(enum agx_double_option option, uint64_t value);

struct agx_double_counts {
  uint64_t kernels;          // dispatches, copies, fills, draws and the like that have run
  uint64_t command_buffers;  // completed
  int64_t live_encoders;
  int64_t live_command_buffers;
};
void agx_double_read(struct agx_double_counts* counts);
}
