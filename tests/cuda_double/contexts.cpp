#include "tests/cuda_double/contexts.h"

#include <array>
#include <cstdlib>
#include <utility>

#include "base/fork.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/cuda_double/device_memory.h"

namespace heddle::cuda_double {
namespace {

std::array<int, kMostDevices> the_contexts;
const uint32_t born = fork_generation();

int devices_of_environment() {
  const char* const count = std::getenv("HEDDLE_CUDA_DOUBLE_DEVICES");
  return count != nullptr && *count == '2' ? 2 : 1;
}
Atomic<int>& device_count() {
  static Atomic<int> count(devices_of_environment());  // set before devices are opened
  return count;
}
Atomic<int> captures{0};  // relaxed: a test sets it before the threads that it concerns start

// Without a destructor: threads call CUDA while they, or the process, end.
struct Contexts {
  std::array<cuda::Context, 16> stack;
  size_t depth;
};
Contexts& contexts() {
  static thread_local constinit Contexts mine{};
  return mine;
}
int& capture_mode() {
  static thread_local constinit int mode = 0;  // global
  return mode;
}

}  // namespace

int devices() { return device_count().load_relaxed(); }
void set_devices(int count) { device_count().store_relaxed(count); }

cuda::Context context_of(int device) { return &the_contexts[static_cast<size_t>(device)]; }

void push_context(cuda::Context context) {
  Contexts& mine = contexts();
  if (mine.depth == mine.stack.size()) stop("cuCtxPushCurrent", "contexts are pushed and not popped");
  mine.stack[mine.depth++] = context;
}

cuda::Context pop_context() {
  require_context("cuCtxPopCurrent");
  Contexts& mine = contexts();
  return mine.stack[--mine.depth];
}

int device_of_thread() {
  const Contexts& mine = contexts();
  if (mine.depth == 0) return kNoDevice;
  return static_cast<int>(static_cast<int*>(mine.stack[mine.depth - 1]) - the_contexts.data());
}

int current_device(const char* what) {
  if (fork_generation() != born) stop(what, "the process is a forked child of CUDA's");
  const int device = device_of_thread();
  if (device == kNoDevice) stop(what, "no context is current");
  return device;
}

void require_context(const char* what) { static_cast<void>(current_device(what)); }

void require_current(int device, const char* what, const char* why) {
  if (current_device(what) != device) stop(what, why);
}

ForeignCapture::ForeignCapture() { captures.add_relaxed(1); }
ForeignCapture::~ForeignCapture() { captures.sub_relaxed(1); }

int exchange_capture_mode(int mode) { return std::exchange(capture_mode(), mode); }

void require_no_capture(const char* what) {
  if (captures.load_relaxed() > 0 && capture_mode() != cuda::kRelaxedCapture)
    stop(what, "a stranger captures in global mode, and the thread is not in relaxed mode");
}

}  // namespace heddle::cuda_double
