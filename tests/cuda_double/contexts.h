// contexts.h: the devices of the double, and which of their contexts is a thread's.
//
//   Checks     Each function ends the process, saying why, where CUDA refuses the call or does what nobody
//              wants. `what` is CUDA's name of the call.
//   Threads    Any.
#pragma once

#include "base/atomic.h"
#include "drivers/cuda/driver/driver_api.h"

namespace heddle::cuda_double {

inline constexpr int kMostDevices = 2;
int devices();  // 1; HEDDLE_CUDA_DOUBLE_DEVICES=2, and whoever calls set_devices(2), have another
void set_devices(int count);

cuda::Context context_of(int device);
void push_context(cuda::Context context);
cuda::Context pop_context();
int current_device(const char* what);  // whose context is current
inline constexpr int kNoDevice = -1;
int device_of_thread();  // the same; kNoDevice where none is
// The context of what a call takes, a stream say, is current.
void require_current(int device, const char* what, const char* why);

// While one lives, a stranger captures a stream in CUDA's global mode, as PyTorch does.
class ForeignCapture {
 public:
  ForeignCapture();
  ~ForeignCapture();
  ForeignCapture(const ForeignCapture&) = delete;
  ForeignCapture& operator=(const ForeignCapture&) = delete;
};
int exchange_capture_mode(int mode);        // of the thread
void require_no_capture(const char* what);  // or relaxed mode: else the stranger's capture would break

}  // namespace heddle::cuda_double
