// The request queue under simulated schedules: whatever its threads do, each request comes back exactly once.
#include "batch/requests/request_queue.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/simulation_fixture.h"
#include "base/thread.h"

namespace heddle::batch {
namespace {

using heddle::test::holds_for_seeds;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr size_t kRequests = 12;

// Who answered which request, and how often.
class Answers {
 public:
  void* handle(size_t i) { return &handles_[i]; }
  void add(const std::vector<void*>& payloads) {
    for (void* const payload : payloads) ++count(payload);
  }
  void add_refused(size_t i) { ++count(handle(i)); }
  void check(Simulation& sim) {
    for (const auto& each : answers_) sim.expect(each.load_relaxed() == 1, "each request comes back once");
  }

 private:
  struct Count {
    Atomic<int>& of;
    void operator++() { of.add_relaxed(1); }
  };
  Count count(void* payload) {
    return {answers_[static_cast<size_t>(static_cast<char*>(payload) - handles_)]};
  }
  char handles_[kRequests] = {};
  std::array<Atomic<int>, kRequests> answers_;
};

QueueOptions some_options(Simulation& sim) {
  QueueOptions options;
  options.limits.max_rows = 1 + static_cast<int64_t>(sim.random(4));
  options.limits.max_wait = sim.random(2) == 0 ? Duration::max() : microseconds(sim.random(50));
  options.lanes = 1 + static_cast<int>(sim.random(2));
  options.capacity = 2 + sim.random(4);
  return options;
}

// Takes batches until the queue is closed.
void work(Simulation& sim, RequestQueue& queue, Answers& answers) {
  for (;;) {
    const Result<Work> work = queue.take(Deadline::never());
    if (!work.ok())
      return sim.expect(work.status().code() == Code::unavailable, "a worker ends with the queue");
    answers.add(work->expired);
    if (work->ticket == 0) continue;
    queue.formed(work->ticket);
    if (sim.random(2) == 0) sim.pause(microseconds(sim.random(40)));
    sim.expect(queue.ran(work->ticket), "nobody abandoned it");
    answers.add(work->batch);
    const bool lingers = sim.random(3) == 0;
    queue.finish(work->ticket, false, lingers ? Duration(microseconds(20)) : Duration::zero());
    if (lingers) queue.told(work->ticket);
  }
}

void care(RequestQueue& queue, Answers& answers) {
  for (;;) {
    const Care care = queue.care(Deadline::never());
    answers.add(care.expired);
    if (care.closed) return;
  }
}

void produce(Simulation& sim, RequestQueue& queue, Answers& answers, size_t first, size_t count) {
  for (size_t i = first; i < first + count; ++i) {
    Request request;
    request.payload = answers.handle(i);
    request.group = i % 2;
    if (sim.random(4) == 0) request.deadline = Clock::real().now() + microseconds(sim.random(60));
    const Deadline room = sim.random(3) == 0 ? Deadline::in(microseconds(sim.random(30))) : Deadline::never();
    const Result<RequestId> id = queue.submit(request, room);
    if (!id.ok()) {
      answers.add_refused(i);
    } else if (sim.random(4) == 0 && queue.cancel(*id)) {
      answers.add({request.payload});
    }
  }
}

// Each with a deadline, and no worker to meet it.
void produce_late(Simulation& sim, RequestQueue& queue, Answers& answers, size_t first) {
  for (size_t i = first; i < kRequests; i += 2) {
    Request request;
    request.payload = answers.handle(i);
    request.deadline = Clock::real().now() + microseconds(sim.random(60));
    sim.expect(queue.submit(request, Deadline::never()).ok(), "there is room");
  }
}

TEST_CASE(
    "simulated: each request comes back once, through batches, expiry, cancels, a full queue and a close") {
  holds_for_seeds(2000, [](Simulation& sim) {
    RequestQueue queue(some_options(sim));
    Answers answers;
    Atomic<int> producing{2};
    run_together(5, [&](int thread) {
      if (thread < 2) {
        produce(sim, queue, answers, static_cast<size_t>(thread) * kRequests / 2, kRequests / 2);
        if (producing.sub_acq_rel(1) == 1) answers.add(queue.close());
      } else if (thread < 4) {
        work(sim, queue, answers);
      } else {
        care(queue, answers);
      }
    });
    answers.check(sim);
    sim.expect(queue.metrics().depth == 0, "nothing waits");
  });
}

TEST_CASE("simulated: a drain waits until all is answered, without a close by its callers") {
  holds_for_seeds(2000, [](Simulation& sim) {
    QueueOptions options = some_options(sim);
    options.capacity = kRequests;
    RequestQueue queue(options);
    Answers answers;
    run_together(4, [&](int thread) {
      if (thread == 0) {
        produce(sim, queue, answers, 0, kRequests);
        const Status drained = queue.drain(Deadline::never());
        sim.expect(drained.ok(), "drained");
        answers.check(sim);  // what has expired, too
        sim.expect(queue.metrics().depth == 0, "nothing waits");
        sim.expect(queue.close().empty(), "nothing is left for close()");
      } else if (thread < 3) {
        work(sim, queue, answers);
      } else {
        care(queue, answers);
      }
    });
    answers.check(sim);
  });
}

TEST_CASE("simulated: a batch that hangs is reported once, and answered by its worker or by who gave it up") {
  holds_for_seeds(2000, [](Simulation& sim) {
    QueueOptions options = some_options(sim);
    options.hang_after = milliseconds(1);
    options.capacity = kRequests;
    RequestQueue queue(options);
    Answers answers;
    Guarded<std::vector<std::pair<uint64_t, std::vector<void*>>>, Rank::kHelpers> running;
    run_together(4, [&](int thread) {
      if (thread == 0) {
        for (size_t i = 0; i < kRequests; ++i) {
          Request request;
          request.payload = answers.handle(i);
          if (!queue.submit(request, Deadline::never()).ok()) answers.add_refused(i);
        }
        static_cast<void>(queue.drain(Deadline::never()));
        answers.add(queue.close());
      } else if (thread < 3) {
        for (;;) {
          const Result<Work> work = queue.take(Deadline::never());
          if (!work.ok()) return;
          running.lock()->emplace_back(work->ticket, work->batch);
          running.notify_all();
          queue.formed(work->ticket);
          if (sim.random(3) == 0) sim.pause(milliseconds(2));
          if (queue.ran(work->ticket)) answers.add(work->batch);
          static_cast<void>(queue.finish(work->ticket, false));  // goes on, as the one that replaces it
        }
      } else {
        for (;;) {
          const Care care = queue.care(Deadline::never());
          answers.add(care.expired);
          for (const uint64_t ticket : care.hung) {
            const Hang hang = queue.hang(ticket);
            answers.add(hang.refused);
            if (!hang.hangs) continue;
            auto held = running.lock();
            const auto batch = [&] {
              return std::find_if(held->begin(), held->end(),
                                  [&](const auto& each) { return each.first == ticket; });
            };
            held.wait([&] { return batch() != held->end(); });  // its worker has yet to say what it took
            answers.add(batch()->second);
          }
          if (care.closed) return;
        }
      }
    });
    answers.check(sim);
  });
}

TEST_CASE("simulated: without a worker each request comes back once its deadline has passed") {
  holds_for_seeds(1000, [](Simulation& sim) {
    QueueOptions options = some_options(sim);
    options.capacity = kRequests;
    RequestQueue queue(options);
    Answers answers;
    run_together(3, [&](int thread) {
      if (thread < 2) return produce_late(sim, queue, answers, static_cast<size_t>(thread));
      for (size_t expired = 0; expired < kRequests;) {
        const Care care = queue.care(Deadline::never());
        answers.add(care.expired);
        expired += care.expired.size();
      }
    });
    answers.check(sim);
    sim.expect(queue.close().empty(), "nothing is left");
  });
}

}  // namespace
}  // namespace heddle::batch
