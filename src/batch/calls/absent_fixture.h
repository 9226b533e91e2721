// absent_fixture.h: submissions to a coalescer over the test device, with their rows and what became of them.
//
//   What       A Sent keeps its rows until it is answered, and counts its answers. All of a test lie in a
//              Letters, which waits for them.
//   Threads    post(): any; the rest: the test's.
#pragma once

#include <deque>

#include "batch/calls/coalescer_fixture.h"
#include "batch/calls/submission_fixture.h"

namespace heddle::batch {

struct Sent {
  explicit Sent(Rows own) : rows(std::move(own)) {}
  Rows rows;
  Atomic<int> answers{0};  // added (release) by the thread that answers, after `result`
  Code code = Code::internal;
  bool right = false;
};

class Letters {
 public:
  explicit Letters(Fixture& on) : on_(on) {}

  // Its status, and where that is not ok, no answer will come. `also` runs in the answer.
  Status post(Rows rows, Deadline deadline = Deadline::never(), std::stop_token cancel = {},
              std::function<void(Sent&)> also = {}) {
    Sent& sent = sent_.lock()->emplace_back(std::move(rows));
    const auto then = [this, &sent, also = std::move(also)](const Result<std::vector<View>>& result) {
      sent.code = result.status().code();
      sent.right = on_.right(sent.rows, result);
      if (also) also(sent);
      sent.answers.add_release(1);
      answered_.add_release(1);
    };
    posted_.add_relaxed(1);  // before its answer, after which wait() may return
    Status status = on_.coalescer->submit({submitted(sent.rows.view(), then), deadline, std::move(cancel)});
    if (!status.ok()) posted_.sub_relaxed(1);
    return status;
  }
  // All that were taken have one answer each: how many of these were right, and how many have each code.
  struct Counts {
    int64_t right = 0, deadline = 0, cancelled = 0, unavailable = 0, invalid = 0, other = 0;
  };
  Counts wait() {
    wait_until([&] { return answered_.load_acquire() >= posted_.load_relaxed(); });
    Counts counts;
    for (const Sent& sent : *sent_.lock()) {
      if (sent.answers.load_acquire() == 0) continue;
      CHECK(sent.answers.load_acquire() == 1);
      int64_t& of_code = sent.right                       ? counts.right
                         : sent.code == Code::deadline    ? counts.deadline
                         : sent.code == Code::cancelled   ? counts.cancelled
                         : sent.code == Code::unavailable ? counts.unavailable
                         : sent.code == Code::invalid     ? counts.invalid
                                                          : counts.other;
      ++of_code;
    }
    CHECK(answered_.load_acquire() == posted_.load_relaxed());
    return counts;
  }
  int64_t answered() const { return answered_.load_acquire(); }

 private:
  Fixture& on_;
  Guarded<std::deque<Sent>, Rank::kHelpers> sent_;  // references stay good
  Atomic<int64_t> posted_{0}, answered_{0};
};

// While a submission holds the only lane, body() submits more; then the lane is let go.
inline Letters::Counts behind_a_held_lane(Fixture& f, Letters& letters, const std::function<void()>& body) {
  f.hold_first = true;
  REQUIRE(letters.post(Rows(1, 1000)).ok());
  wait_until([&] { return f.latch.arrived() == 1; });
  body();
  f.latch.open();
  return letters.wait();
}

}  // namespace heddle::batch
