// mutex.h: std::mutex, or one whose waits a simulation owns.
//
//   What       The mutex under RankedMutex and Condition. With HEDDLE_SIM a simulated thread that finds it
//              taken sleeps through base/seam.h; other threads use the std::mutex inside.
//   Threads    Any. What a simulated thread locks no thread outside its simulation may hold.
//   Blocks     lock().
#pragma once

#include <mutex>

#if defined(HEDDLE_SIM)
#include "base/seam.h"
#endif

namespace heddle {

#if !defined(HEDDLE_SIM)

using Mutex = std::mutex;

#else

class Mutex {
 public:
  void lock() {
    if (!seam::simulated()) return mutex_.lock();
    seam::count_lock();
    seam::step("lock");
    while (!mutex_.try_lock()) seam::sleep({.key = this, .at = "lock", .holder = holder_, .what = name_});
    taken();
  }
  bool try_lock() {
    seam::count_lock();
    seam::step("try_lock");
    if (!mutex_.try_lock()) return false;
    if (seam::simulated()) taken();
    return true;
  }
  void unlock() {
    if (!seam::simulated()) return mutex_.unlock();
    holder_ = 0;
    if (seam::Memory* const memory = seam::memory()) memory->release(this);
    mutex_.unlock();
    seam::wake(this, seam::kAll, "unlock");
  }
  void set_name(const char* name) { name_ = name; }  // by its holder, for reports; a string literal

 private:
  void taken() {
    holder_ = seam::thread_number();
    if (seam::Memory* const memory = seam::memory()) memory->acquire(this);
  }

  std::mutex mutex_;
  uint32_t holder_ =
      0;  // the simulated thread that has it, written by it; the others read it while it stands
  const char* name_ = nullptr;
};

#endif

}  // namespace heddle
