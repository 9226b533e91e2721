#include "base/clock.h"

#include <ctime>

#include "base/made_once.h"
#include "base/seam.h"

namespace heddle {

namespace {

class RealClock final : public Clock {
 public:
  TimePoint now() const override {
#if defined(HEDDLE_SIM)
    if (seam::simulated()) return seam::now();
#endif
    return std::chrono::steady_clock::now();
  }
};

}  // namespace

const Clock& Clock::real() {
  static constinit MadeOnce<const RealClock> clock;
  return clock.get();
}

Duration thread_cpu_time() {
#if defined(HEDDLE_SIM)
  if (seam::simulated()) return seam::cpu_time();
#endif
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + Duration(now.tv_nsec);
}

Deadline Deadline::in(Duration wait, const Clock& clock) {
  const TimePoint now = clock.now();
  if (wait >= TimePoint::max() - now) return never();
  return at(now + wait);
}

}  // namespace heddle
