// parked.h: one caller that waits until it is handed a place, or refused.
//
//   What       The waiter shares it with a queue. The thread that takes it out of the queue owes it exactly
//              one answer.
//   Threads    wait(): the waiter. grant() and refuse(): the thread that took it out of the queue, after it
//              released the queue's lock.
//   Blocks     wait(), until its deadline. After a deadline the waiter looks, under the queue's lock, whether
//              it is still queued; if not, its answer is on the way and wait(never) gets it.
#pragma once

#include <optional>

#include "base/clock.h"
#include "base/status.h"
#include "base/sync.h"

namespace heddle::runtime {

class Parked {
 public:
  void grant(int place) {
    auto answer = answer_.lock();
    answer->place = place;
    answer->given = true;
    seam::did("parked.grant", place);
    answer.notify_one();
  }
  void refuse(Status why) {
    auto answer = answer_.lock();
    answer->why = std::move(why);
    answer->given = true;
    seam::did("parked.refuse");
    answer.notify_one();
  }
  std::optional<Result<int>> wait(Deadline deadline) {  // nothing: the deadline passed
    auto answer = answer_.lock();
    if (!answer.wait_until(deadline, [&] { return answer->given; })) return std::nullopt;
    if (!answer->why.ok()) return Result<int>(answer->why);
    return Result<int>(answer->place);
  }

 private:
  struct Answer {
    bool given = false;
    int place = 0;
    Status why;
  };
  Guarded<Answer, Rank::kGovernor> answer_;
};

}  // namespace heddle::runtime
