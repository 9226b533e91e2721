// The request queue under simulated schedules: whatever its threads do, each request comes back exactly once.
#include "batch/requests/request_queue.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "base/replay_fixture.h"
#include "base/simulation_fixture.h"
#include "base/thread.h"

namespace heddle::batch {
namespace {

using heddle::test::holds_for_seeds;
using heddle::test::log_for_model;
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
  void add(const Owed& owed) { add(owed.payloads()); }
  void add_refused(size_t i) { ++count(handle(i)); }
  void check(Simulation& sim, size_t requests = kRequests) {
    for (size_t i = 0; i < requests; ++i) check_one(sim, i);
  }
  void check_one(Simulation& sim, size_t i) {
    sim.expect(answers_[i].load_relaxed() == 1, "each request comes back once");
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
    if (const Owed owed = queue.ran(work->ticket)) {
      answers.add(work->batch);
    } else {
      sim.expect(false, "nobody abandoned it");
    }
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
    } else if (sim.random(4) == 0) {
      answers.add(queue.cancel(*id));
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
        sim.expect(!queue.close(), "nothing is left for close()");
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
          if (const Owed owed = queue.ran(work->ticket)) answers.add(work->batch);
          static_cast<void>(queue.finish(work->ticket, false));  // goes on, as the one that replaces it
        }
      } else {
        for (;;) {
          const Care care = queue.care(Deadline::never());
          answers.add(care.expired);
          for (const uint64_t ticket : care.hung) {
            const Hang hang = queue.hang(ticket);
            if (!hang.owed) continue;
            answers.add(hang.owed);
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
        expired += care.expired.payloads().size();
      }
    });
    answers.check(sim);
    sim.expect(!queue.close(), "nothing is left");
  });
}

// The processes of models/request_queue.pml, in the order of their roles there.
struct Played {
  int requests = 3, workers = 1;
  size_t capacity = 1;
  bool late = false, keeper = false, cancels = false, drains = false, closes = false, hangs = false,
       dies = false;
};

class Play {
 public:
  Play(Simulation& sim, const Played& played)
      : sim_(sim), played_(played), queue_(options(played)), start_(Clock::real().now()) {}

  void run() {
    run_together(played_.requests + played_.workers + 4, [&](int role) {
      sim_.play(role);
      const int worker = role - played_.requests;
      if (worker < 0) return submit(role);
      if (worker < played_.workers) return work();
      switch (worker - played_.workers) {
        case 0:
          return close();
        case 1:
          return played_.keeper ? keep() : void();
        case 2:
          return played_.cancels ? cancel() : void();
        default:
          return played_.drains ? drain() : void();
      }
    });
    answers_.check(sim_, static_cast<size_t>(played_.requests));
  }

 private:
  static QueueOptions options(const Played& played) {
    QueueOptions options;
    options.limits.max_rows = 2;
    options.limits.max_wait = Duration::zero();
    options.lanes = played.workers;
    options.capacity = played.capacity;
    if (played.hangs) options.hang_after = microseconds(10);
    return options;
  }

  void pause(uint64_t most) {
    for (uint64_t rest = sim_.random(most); rest > 0; --rest) yield_point("before a process begins");
  }

  // As BatchQueue's threads: after the lock, each request once, and the Owed ends after them.
  void answer(Owed owed) {
    const Owed held = std::move(owed);
    answer(held.payloads());
  }
  void answer(std::vector<void*> payloads) {
    std::sort(payloads.begin(), payloads.end());
    for (void* const payload : payloads) {
      answers_.add({payload});
      seam::did("request.answer", static_cast<char*>(payload) - static_cast<char*>(answers_.handle(0)));
      settle();
    }
  }
  void settle() {
    ++*settled_.lock();
    settled_.notify_all();
  }

  void submit(int number) {
    pause(12);
    Request request;
    request.payload = answers_.handle(static_cast<size_t>(number));
    if (played_.keeper) request.deadline = start_ + microseconds(4 + 8 * number);
    const bool patient = !played_.late || sim_.random(2) == 0;
    const Deadline room = patient ? Deadline::never() : Deadline::in(microseconds(sim_.random(5)));
    const Result<RequestId> id = queue_.submit(request, room);
    if (number == 0) {
      *first_.lock() = id.ok() ? *id : RequestId(0);
      first_.notify_all();
    }
    if (id.ok()) return accepted_[static_cast<size_t>(number)].store_relaxed(true);
    answers_.add({request.payload});
    settle();
  }

  void work() {
    if (played_.dies && sim_.random(3) == 0) return answer(queue_.lost_worker("it cannot start"));
    pause(12);
    for (;;) {
      Result<Work> work = queue_.take(Deadline::never());
      if (!work.ok()) return;
      answer(std::move(work->expired));
      if (work->ticket == 0) continue;
      if (played_.hangs) running_.lock()->emplace_back(work->ticket, work->batch);
      running_.notify_all();
      if (sim_.random(2) == 0) sim_.pause(microseconds(sim_.random(24)));
      if (const Owed owed = queue_.ran(work->ticket)) answer(work->batch);
      sim_.expect(queue_.finish(work->ticket, false), "no worker is replaced");
    }
  }

  void keep() {
    pause(12);
    for (;;) {
      Care care = queue_.care(Deadline::never());
      answer(std::move(care.expired));
      for (const uint64_t ticket : care.hung) give_up(ticket);
      if (care.closed) return;
    }
  }

  void give_up(uint64_t ticket) {
    const Hang hang = queue_.hang(ticket);
    if (!hang.owed) return;
    std::vector<void*> all = hang.owed.payloads();
    {
      auto running = running_.lock();
      const auto of_ticket = [&](const auto& each) { return each.first == ticket; };
      running.wait([&] { return std::any_of(running->begin(), running->end(), of_ticket); });
      const auto found = std::find_if(running->begin(), running->end(), of_ticket);
      all.insert(all.end(), found->second.begin(), found->second.end());
    }
    answer(all);
  }

  void cancel() {
    std::optional<RequestId> id;
    {
      auto first = first_.lock();
      first.wait([&] { return first->has_value(); });
      id = *first;
    }
    answer(queue_.cancel(*id));
  }

  void drain() {
    pause(60);
    sim_.expect(queue_.drain(Deadline::never()).ok(), "drained");
    for (size_t i = 0; i < accepted_.size(); ++i) {
      if (accepted_[i].load_relaxed()) answers_.check_one(sim_, i);
    }
  }

  void close() {
    if (played_.closes) {
      pause(90);
    } else {
      auto settled = settled_.lock();
      settled.wait([&] { return *settled == played_.requests; });
    }
    answer(queue_.close());
  }

  Simulation& sim_;
  const Played played_;
  RequestQueue queue_;
  const TimePoint start_;
  Answers answers_;
  std::array<Atomic<bool>, kRequests> accepted_;
  Guarded<int, Rank::kHelpers> settled_{0};
  Guarded<std::optional<RequestId>, Rank::kHelpers> first_;  // of request 0; 0: it was refused
  Guarded<std::vector<std::pair<uint64_t, std::vector<void*>>>, Rank::kHelpers> running_;
};

TEST_CASE("simulated: a drain returns after the last answer, to what was cancelled, hung or had no worker") {
  holds_for_seeds(2000, [](Simulation& sim) {
    Played played{.requests = 2, .workers = 1, .drains = true};
    played.capacity = 1 + sim.random(2);
    played.cancels = sim.random(2) == 0;
    played.keeper = played.hangs = sim.random(2) == 0;
    played.dies = sim.random(2) == 0;
    played.closes = sim.random(4) == 0;
    Play(sim, played).run();
  });
}

TEST_CASE("simulated: those who drain while they answer wait for others and not for one another") {
  holds_for_seeds(500, [](Simulation& sim) {
    RequestQueue queue(some_options(sim));
    Answers answers;
    RequestId ids[2];
    for (size_t i = 0; i < 2; ++i) {
      Request request;
      request.payload = answers.handle(i);
      ids[i] = *queue.submit(request, Deadline::never());
    }
    run_together(4, [&](int thread) {
      if (thread < 2) {
        const Owed owed = queue.cancel(ids[thread]);
        if (owed) sim.expect(queue.drain(Deadline::never()).ok(), "drained from within an answer");
        answers.add(owed);
      } else if (thread == 2) {
        sim.expect(queue.drain(Deadline::never()).ok(), "drained");
        answers.check(sim, 2);
        static_cast<void>(queue.close());
      } else {
        for (;;) {
          const Result<Work> work = queue.take(Deadline::never());
          if (!work.ok()) return;
          const Owed owed = queue.ran(work->ticket);
          answers.add(work->batch);
          sim.expect(queue.drain(Deadline::never()).ok(), "drained by a worker that answers");
          queue.finish(work->ticket, false);
        }
      }
    });
    answers.check(sim, 2);
  });
}

TEST_CASE("replayed: request_queue: room until a deadline, a cancel, a drain, workers that do not start") {
  log_for_model("request_queue", "room", 80, [](Simulation& sim) {
    Play(sim, {.workers = 2, .late = true, .cancels = true, .drains = true, .dies = true}).run();
  });
}

TEST_CASE("replayed: request_queue: a drain and a close at any time") {
  log_for_model("request_queue", "close", 60,
                [](Simulation& sim) { Play(sim, {.workers = 2, .drains = true, .closes = true}).run(); });
}

TEST_CASE("replayed: request_queue: deadlines that workers and the keeper find, before a drain") {
  log_for_model("request_queue", "deadlines", 60,
                [](Simulation& sim) { Play(sim, {.capacity = 2, .keeper = true, .drains = true}).run(); });
}

TEST_CASE("replayed: request_queue: the only worker hangs, and comes back, beside a drain") {
  log_for_model("request_queue", "hang", 60,
                [](Simulation& sim) { Play(sim, {.keeper = true, .drains = true, .hangs = true}).run(); });
}

}  // namespace
}  // namespace heddle::batch
