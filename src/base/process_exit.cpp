#include "base/process_exit.h"

#include <cstdlib>

#include "base/atomic.h"

namespace heddle {

namespace {

// Set once (release), read by each renewal (acquire).
constinit Atomic<void (*)()> exit_handler{nullptr};

}  // namespace

void set_exit_handler(void (*handler)()) {
  exit_handler.store_release(handler);
  renew_exit_handler();
}

void renew_exit_handler() {
  if (auto* const handler = exit_handler.load_acquire(); handler != nullptr)
    static_cast<void>(std::atexit(handler));
}

}  // namespace heddle
