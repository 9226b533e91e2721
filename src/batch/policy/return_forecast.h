// return_forecast.h: does it pay to wait for callers that were just answered? Threads in a loop come back and
// fill the next batch; requests that each have a thread of their own do not, nor do rows of other shapes.
//
//   What       Counts, of the batches that were opened while callers were expected back, those that a
//              caller joined and those that none did; older counts fade. expect() says whether to wait for
//              callers just answered: when at least half of the batches were joined, and otherwise once in
//              a while, to notice that it has changed.
//   Threads    The owner's lock. Pure bookkeeping: knows no time.
#pragma once

#include <cstdint>

namespace heddle::batch {

class ReturnForecast {
 public:
  bool expect() {
    if (joined_ >= alone_) return true;
    return ++refused_ % kRetry == 0;
  }
  void note(bool joined) {
    (joined ? joined_ : alone_) += 1;
    if (joined_ + alone_ < kMemory) return;
    joined_ /= 2;
    alone_ /= 2;
  }

 private:
  static constexpr double kMemory = 64;
  static constexpr uint64_t kRetry = 32;
  double joined_ = 0, alone_ = 0;
  uint64_t refused_ = 0;
};

}  // namespace heddle::batch
