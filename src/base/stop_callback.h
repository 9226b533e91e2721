// stop_callback.h: std::stop_callback, or one whose wait a simulation owns.
//
//   What       The destructor of a std::stop_callback waits while another thread runs the callback, inside
//              the standard library, where no seam is: in a simulation the thread that it waits for would
//              never run again. With HEDDLE_SIM a simulated thread waits here first, through base/seam.h.
//              The library then has nothing left to wait for: from its choice of a callback to the
//              callback's first seam, and from the last seam to the end as the library sees it, no other
//              thread of the simulation runs.
//   Threads    As std::stop_callback: any may ask to stop; a callback may destroy itself.
//   Blocks     The destructor, until a callback that another thread runs has returned.
//   Lifetime   As std::stop_callback.
#pragma once

#include <stop_token>

#if defined(HEDDLE_SIM)
#include <memory>
#include <utility>

#include "base/seam.h"
#endif

namespace heddle {

#if !defined(HEDDLE_SIM)

// No alias: Clang 16 deduces the argument of classes only.
template <class Callback>
class StopCallback : public std::stop_callback<Callback> {
  using std::stop_callback<Callback>::stop_callback;
};

#else

template <class Callback>
class StopCallback {
 public:
  template <class Made>
  StopCallback(const std::stop_token& token, Made&& callback)
      : running_(std::make_shared<Running>()),
        registered_(token, Watched{running_, std::forward<Made>(callback)}) {}
  StopCallback(const StopCallback&) = delete;
  StopCallback& operator=(const StopCallback&) = delete;
  ~StopCallback() {
    if (!seam::simulated()) return;
    seam::step("stop callback");
    while (running_->is_on_another()) {
      seam::let_others_run("stop callback");
    }
  }

 private:
  struct Running {
    Running() {
      if (seam::Memory* const memory = seam::memory()) memory->make_lock(this);
    }
    void set(uint32_t thread) {
      seam::notice("stop callback", this);
      if (seam::Memory* const memory = seam::memory()) memory->release(this);
      on = thread;
    }
    bool is_on_another() const {
      if (seam::Memory* const memory = seam::memory()) memory->look(this);
      return on != 0 && on != seam::thread_number();
    }
    uint32_t on = 0;  // the number of the simulated thread that runs it; 0: none. Only that one writes
  };
  struct Watched {
    std::shared_ptr<Running> running;
    Callback callback;
    void operator()() {
      if (!seam::simulated()) return callback();
      const std::shared_ptr<Running> kept = running;  // the callback may destroy this
      kept->set(seam::thread_number());
      callback();
      kept->set(0);
    }
  };

  const std::shared_ptr<Running> running_;
  const std::stop_callback<Watched> registered_;
};

#endif

template <class Callback>
StopCallback(const std::stop_token&, Callback) -> StopCallback<Callback>;

}  // namespace heddle
