// stream.h: a stream of the double: a thread that does what it is told, in order; and its events.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/sync.h"
#include "base/thread.h"
#include "drivers/cuda/driver/driver_api.h"
#include "tests/cuda_double/work_order.h"

namespace heddle::cuda_double {

class Moment {  // one record of an event
 public:
  void reach(Known known, TimePoint at) {
    *state_.lock() = {true, std::move(known), at};
    state_.notify_all();
  }
  bool reached() const { return state_.lock()->over; }
  Known known() const { return state_.lock()->known; }  // what is over with it
  TimePoint when() const { return state_.lock()->at; }
  Known wait() {
    auto state = state_.lock();
    state.wait([&] { return state->over; });
    return state->known;
  }

 private:
  struct State {
    bool over = false;
    Known known;
    TimePoint at;  // by blas_lt_clock()
  };
  Guarded<State, Rank::kTimeline> state_;
};

struct Event {
  explicit Event(int its_device) : device(its_device) {}
  const int device;
  Guarded<Ref<Moment>, Rank::kBuffer> moment;  // null: it was never recorded
};

class Stream {
 public:
  explicit Stream(int device);
  ~Stream();  // when all it was told is done
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  int device() const { return device_; }
  WorkOrder& order() { return order_; }
  // Does it; or keeps it, while the stream is captured.
  void tell(std::function<void()> work);
  void begin_capture();
  std::vector<std::function<void()>> end_capture();
  // Ends the process where the stream is captured: that would end the capture.
  void require_uncaptured(const char* what);
  bool idle();
  void wait_idle();

 private:
  struct Told {
    std::function<void()> work;
    Known host;  // what the host knew
  };
  struct State {
    std::deque<Told> told;
    size_t left = 0;  // told and not done
    bool closed = false;
    std::optional<std::vector<std::function<void()>>> captured;
  };
  void run();

  const int device_;
  WorkOrder order_;
  Guarded<State, Rank::kBuffer> state_;
  Thread thread_;
};

// Ends the process for the null stream, without a context, and where the stream is of another.
Stream* stream_of(cuda::StreamHandle handle, const char* what);

}  // namespace heddle::cuda_double
