// return_forecast.h: does it pay to wait for callers who were just answered? Threads in a loop come back and
// fill the next batch; requests that each have a thread of their own do not, nor do rows of other shapes.
//
//   What       Counts, of the callers who were waited for, who joined somebody's batch in time and who did
//              not; older counts fade. expect() says whether to wait for those just answered: when at least
//              half of the others joined, and otherwise once in a while, to notice that it has changed.
//   Threads    The owner's lock. Pure bookkeeping: knows no time.
#pragma once

#include <cstdint>

namespace heddle::batch {

class ReturnForecast {
 public:
  bool expect() {
    if (came_ >= lost_) return true;
    return ++refused_ % kRetry == 0;
  }
  void came() { note(came_, 1); }
  void lost(int callers) { note(lost_, callers); }

 private:
  static constexpr double kMemory = 256;
  static constexpr uint64_t kRetry = 32;
  void note(double& which, int callers) {
    which += callers;
    if (came_ + lost_ < kMemory) return;
    came_ /= 2;
    lost_ /= 2;
  }
  double came_ = 0, lost_ = 0;
  uint64_t refused_ = 0;
};

}  // namespace heddle::batch
