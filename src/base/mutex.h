// mutex.h: std::mutex, or one whose waits a simulation owns.
//
//   What       The mutex under RankedMutex and Condition. With HEDDLE_SIM a simulated thread that finds it
//              taken sleeps through base/seam.h; other threads use the std::mutex inside.
//   Threads    Any. What a simulated thread locks no thread outside its simulation may hold.
//   Blocks     lock().
#pragma once

#include <mutex>

#if defined(HEDDLE_SIM)
#include <type_traits>

#include "base/seam.h"
#endif

namespace heddle {

#if !defined(HEDDLE_SIM)

using Mutex = std::mutex;

#else

class Mutex {
 public:
  constexpr Mutex() {
    if (!std::is_constant_evaluated()) {
      if (seam::Memory* const memory = seam::memory()) memory->make_lock(this);
    }
  }
  void lock() {
    if (!seam::simulated()) return mutex_.lock();
    seam::count_lock();
    seam::step("lock", seam::kMeeting, this);
    while (!try_take()) seam::sleep({.key = this, .at = "lock", .holder = holder_, .what = name_});
    taken();
  }
  bool try_lock() {
    seam::count_lock();
    seam::step("try_lock", seam::kMeeting, this);
    if (!try_take()) return false;
    if (seam::simulated()) taken();
    return true;
  }
  void unlock() {
    if (!seam::simulated()) return mutex_.unlock();
    seam::notice("unlock", this);
    holder_ = 0;
    if (seam::Memory* const memory = seam::memory()) memory->release(this);
    mutex_.unlock();
    seam::wake(this, seam::kAll, "unlock");
  }
  void set_name(const char* name) { name_ = name; }  // by its holder, for reports; a string literal

 private:
  bool try_take() {
    if (mutex_.try_lock()) return true;
    if (seam::Memory* const memory = seam::memory()) memory->look(this);
    return false;
  }
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
