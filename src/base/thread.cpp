#include "base/thread.h"

#include <algorithm>

#include <pthread.h>

#include <system_error>
#include <vector>

#include "base/atomic.h"

namespace heddle {

namespace {

void name_this_thread(const std::string& name) {
  const std::string kept = name.substr(0, 15);  // Linux refuses longer names instead of cutting them
#if defined(__APPLE__)
  pthread_setname_np(kept.c_str());
#else
  pthread_setname_np(pthread_self(), kept.c_str());
#endif
}

}  // namespace

Thread::Thread(std::string name, std::function<void()> body) {
#if defined(HEDDLE_SIM)
  if (seam::simulated()) {
    thread_ = start_simulated(std::move(name), std::move(body), simulated_);
    return;
  }
#endif
  thread_ = std::thread([name = std::move(name), body = std::move(body)] {
    name_this_thread(name);
    body();
  });
}

#if defined(HEDDLE_SIM)
std::thread Thread::start_simulated(std::string name, std::function<void()> body, uint32_t& number) {
  const seam::NewThread made = seam::announce(name);
  number = made.number;
  try {
    std::thread thread([made, name = std::move(name), body = std::move(body)] {
      name_this_thread(name);
      seam::run(made, body);
    });
    seam::step("start");
    return thread;
  } catch (const std::system_error&) {
    seam::withdraw(made);
    throw;
  }
}
#endif

Result<Thread> Thread::start(std::string name, std::function<void()> body) {
  try {
    return Thread(name, std::move(body));
  } catch (const std::system_error& error) {
    return Status::exhausted("thread '", name, "' cannot be started: ", error.what());
  }
}

void Thread::join() {
  if (!thread_.joinable()) return;
  if (fork_generation() == generation_) {
#if defined(HEDDLE_SIM)
    if (simulated_ != 0 && seam::simulated()) seam::join(simulated_);
#endif
    thread_.join();
  } else {
    // A handle of the parent's thread: destroying it would end the process, joining it would hang.
    new std::thread(std::move(thread_));
  }
}

int processors() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

void run_together(int threads, const std::function<void(int)>& body) {
  Atomic<int> missing(threads);  // relaxed: who arrives has written nothing that the others read
  std::vector<Thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back(text("together-", i), [&missing, &body, i] {
      if (missing.sub_relaxed(1) == 1) missing.notify_all();
      for (int left = missing.load_relaxed(); left != 0; left = missing.load_relaxed()) missing.wait(left);
      body(i);
    });
  }
}

}  // namespace heddle
