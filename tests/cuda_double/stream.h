// stream.h: a stream of the double: a thread that does what it is told, in order; and its events.
#pragma once

#include <deque>
#include <functional>

#include "base/sync.h"
#include "base/thread.h"

namespace heddle::cuda_double {

class Moment {  // one record of an event
 public:
  void reach() {
    *over_.lock() = true;
    over_.notify_all();
  }
  bool reached() const { return *over_.lock(); }
  void wait() {
    auto over = over_.lock();
    over.wait([&] { return *over; });
  }

 private:
  Guarded<bool, Rank::kTimeline> over_{false};
};

struct Event {
  Guarded<Ref<Moment>, Rank::kBuffer> moment;  // null: it was never recorded
};

class Stream {
 public:
  Stream();
  ~Stream();  // when all it was told is done
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  void tell(std::function<void()> work);
  bool idle() const { return state_.lock()->left == 0; }
  void wait_idle();

 private:
  struct State {
    std::deque<std::function<void()>> work;
    size_t left = 0;  // told and not done
    bool closed = false;
  };
  void run();

  mutable Guarded<State, Rank::kBuffer> state_;
  Thread thread_;
};

}  // namespace heddle::cuda_double
