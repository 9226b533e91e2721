// thread.h: a thread that has a name and is always joined.
//
//   What       Starts in its constructor, joins in its destructor. There is no detach.
//   Invariant  Make it the last member of its owner: it starts after, and stops before, all that it uses.
//   Threads    One owner. The body must end by itself: tell it to (a closed queue, a flag under a lock)
//              before the Thread is destroyed.
//   Blocks     join(), the destructor and move assignment, until the body returns. So none of them runs under
//              a lock.
//   Lifetime   The body is destroyed on the new thread's end. What it captured by reference must outlive the
//              Thread.
//   Errors     start() gives `exhausted` when the system has no thread left; the constructor is for places
//              that cannot go on without (it lets std::system_error pass). A body that throws ends the
//              process.
//   Seams      Made by a simulated thread, it is one of the same simulation (base/simulation.h).
//   Fork       In a child process the thread does not exist: join() returns at once.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "base/fork.h"
#include "base/status.h"

namespace heddle {

class Thread {
 public:
  Thread() = default;
  Thread(std::string name, std::function<void()> body);  // the system keeps the first 15 bytes of the name
  static Result<Thread> start(std::string name, std::function<void()> body);

  Thread(Thread&&) noexcept = default;
  Thread& operator=(Thread&& other) noexcept {
    join();
    thread_ = std::move(other.thread_);
    generation_ = other.generation_;
#if defined(HEDDLE_SIM)
    simulated_ = other.simulated_;
#endif
    return *this;
  }
  ~Thread() { join(); }

  void join();
  bool joinable() const { return thread_.joinable(); }

 private:
  std::thread thread_;
  uint32_t generation_ = fork_generation();
#if defined(HEDDLE_SIM)
  static std::thread start_simulated(std::string name, std::function<void()> body, uint32_t& number);
  uint32_t simulated_ = 0;  // its number in the simulation; 0: it belongs to none
#endif
};

// For tests and benchmarks: body(0) ... body(threads - 1) on threads of their own, let go at one moment;
// returns when all have returned.
void run_together(int threads, const std::function<void(int)>& body);

int processors();  // that this process may run on; 1 where that is not known

}  // namespace heddle
