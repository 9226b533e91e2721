#include "base/process_exit.h"

#include <pthread.h>

#include <cstdlib>
#include <thread>

#include "base/atomic.h"

namespace heddle {

namespace {

// Set once (release), read by each renewal (acquire).
constinit Atomic<void (*)()> exit_handler{nullptr};

// A thread is inside atexit(), or fork() goes on: taken by compare-and-swap, given back with release. The C
// library has a lock there that a forked child would find taken for ever, also in its exit().
constinit Atomic<uint32_t> registering{0};

void take() {
  for (uint32_t free = 0; !registering.cas_strong_acq_rel(free, 1); free = 0) std::this_thread::yield();
}
void give_back() { registering.store_release(0); }

// While the library is loaded.
const int forks_wait = pthread_atfork(take, give_back, give_back);

}  // namespace

void set_exit_handler(void (*handler)()) {
  exit_handler.store_release(handler);
  renew_exit_handler();
}

void renew_exit_handler() {
  static_cast<void>(forks_wait);
  auto* const handler = exit_handler.load_acquire();
  if (handler == nullptr) return;
  take();
  static_cast<void>(std::atexit(handler));
  give_back();
}

}  // namespace heddle
