// Who claims the end of a run, and when.
#include "batch/calls/run_end.h"

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <new>

#include "base/thread.h"
#include "device/completing_queue_fixture.h"

namespace heddle::batch {

TEST_CASE("the end of a run is claimed by one of all who look, once it is there or never will be") {
  for (const bool fails : {false, true}) {
    CAPTURE(fails);
    device::CompletingQueue queue;
    RunEnd end;
    CHECK_FALSE(end.is_shown());
    CHECK_FALSE(end.claim_if_over());
    queue.advance(1);
    end.show(queue.timeline(), 2);
    CHECK(end.is_shown());
    CHECK_FALSE(end.claim_if_over());
    Atomic<int> claims{0};
    Atomic<bool> is_claimed{false};
    run_together(4, [&](int i) {
      if (i == 0) {
        if (fails) {
          queue.fail(Status::device_lost("pulled"));
        } else {
          queue.advance(2);
        }
        return;
      }
      while (!is_claimed.load_acquire()) {
        if (!end.claim_if_over()) continue;
        claims.add_relaxed(1);
        is_claimed.store_release(true);
      }
    });
    CHECK(claims.load_relaxed() == 1);
    CHECK_FALSE(end.claim());
    CHECK(end.await(Deadline::never()).ok());
    end.renew();
    CHECK_FALSE(end.is_shown());
    CHECK(queue.timeline().use_count() == 1);  // the queue's own
  }
}

TEST_CASE("await() claims nothing, and says at its deadline that the run is not over") {
  device::CompletingQueue queue;
  RunEnd end;
  end.show(queue.timeline(), 1);
  CHECK(end.await(Deadline::in(Duration(0))).code() == Code::deadline);
  CHECK_FALSE(end.claim_if_over());
  queue.advance(1);
  CHECK(end.await(Deadline::in(Duration(0))).ok());
  CHECK(end.claim_if_over());
  CHECK_FALSE(end.claim());
}

TEST_CASE("a look that lacks memory sees no end, and the next one does") {
  class Poor final : public device::Timeline {
   public:
    void look() override {
      if (looks++ == 0) throw std::bad_alloc();
      advance_now();
    }
    std::function<void()> advance_now;
    int looks = 0;
  };
  class Queue final : public device::Queue {
   public:
    explicit Queue(const Ref<Poor>& timeline) : device::Queue(timeline) {
      timeline->advance_now = [this] { this->timeline()->advance(1, completion()); };
    }
    Status submit(const device::CommandList&, uint64_t, NoLocksHeld) override { return {}; }
  };
  const auto timeline = std::make_shared<Poor>();
  const Queue queue(timeline);
  RunEnd end;
  end.show(timeline, 1);
  CHECK_FALSE(end.claim_if_over());
  CHECK(end.claim_if_over());
  CHECK(timeline->looks == 2);
}

}  // namespace heddle::batch
