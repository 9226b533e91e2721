#include "base/clock.h"

namespace heddle {

namespace {

class RealClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

}  // namespace

const Clock& Clock::real() {
  static const RealClock clock;
  return clock;
}

Deadline Deadline::in(Duration wait, const Clock& clock) {
  const TimePoint now = clock.now();
  if (wait >= TimePoint::max() - now) return never();
  return at(now + wait);
}

}  // namespace heddle
