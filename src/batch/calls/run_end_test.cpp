// Who claims the end of a run, and when.
#include "batch/calls/run_end.h"

#include <doctest/doctest.h>

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
    end.give_back();
    CHECK(end.claim_if_over());
    end.renew();
    CHECK_FALSE(end.is_shown());
    CHECK(queue.timeline().use_count() == 1);  // the queue's own
  }
}

TEST_CASE("who claims an end that is not there yet keeps it from the others until it gives it back") {
  device::CompletingQueue queue;
  RunEnd end;
  end.show(queue.timeline(), 1);
  CHECK(end.claim());
  queue.advance(1);
  CHECK_FALSE(end.claim_if_over());
  CHECK_FALSE(end.claim());
  end.give_back();
  CHECK(end.claim_if_over());
}

}  // namespace heddle::batch
