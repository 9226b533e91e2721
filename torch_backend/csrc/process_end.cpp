// process_end.cpp: threads that wait for the end of the process.
#include "process_end.h"

#include <unistd.h>

#include <atomic>
#include <exception>
#include <thread>

namespace heddle::torch_backend {
namespace {

// Plain values, so that threads may look at any time.
std::atomic<bool> announced{false};
std::atomic<int> callers{0}, waiting{0};
thread_local bool ends_the_process = false;
thread_local int counted = 0;  // how often this thread is among the callers: 0 or 1

struct Caller {
  Caller() { counted = 1, callers.fetch_add(1, std::memory_order_relaxed); }
  ~Caller() { counted = 0, callers.fetch_sub(1, std::memory_order_relaxed); }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;
};

[[noreturn]] void wait_for_the_end() {
  for (;;) pause();
}

std::terminate_handler terminate_before = nullptr;

// CPython ends a thread by unwinding it, so no exception is active in the frame that nothing may leave.
[[noreturn]] void terminate() {
  if (!ends_the_process && std::current_exception() == nullptr) wait_for_the_end();
  terminate_before();
  std::abort();
}

}  // namespace

void count_caller() { thread_local const Caller while_it_lives; }

void before_exit() {
  ends_the_process = true;
  if (std::get_terminate() != terminate) {
    terminate_before = std::get_terminate();
    std::set_terminate(terminate);
  }
  announced.store(true, std::memory_order_release);
  const pybind11::gil_scoped_release released;
  const auto end = std::chrono::steady_clock::now() + kLongest;
  while (waiting.load(std::memory_order_acquire) + counted < callers.load(std::memory_order_relaxed) &&
         std::chrono::steady_clock::now() < end)
    std::this_thread::yield();
}

bool process_ends() { return announced.load(std::memory_order_acquire); }

void stay_out_of_exit() {
  if (!process_ends()) [[likely]]
    return;
  if (ends_the_process || PyGILState_Check() != 0) return;
  waiting.fetch_add(1, std::memory_order_release);
  wait_for_the_end();
}

FreeGil::FreeGil() {
  if (PyGILState_Check() != 0) free_.emplace();
}

FreeGil::~FreeGil() {
  if (free_) stay_out_of_exit();
}

}  // namespace heddle::torch_backend
