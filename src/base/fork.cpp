#include "base/fork.h"

#include <pthread.h>

namespace heddle {

namespace {

// Registered while the library is loaded, so that no fork can come between the first use and it.
const int registered = pthread_atfork(nullptr, nullptr, [] { fork_count.add_relaxed(1); });

}  // namespace

uint32_t fork_generation() {
  static_cast<void>(registered);
  return fork_count.load_relaxed();
}

Status forked() {
  return Status::unavailable(
      "this process was forked from one that had used Heddle; its threads, locks and devices did not come "
      "along. Start workers with 'spawn' or 'forkserver', or fork before the first use");
}

}  // namespace heddle
