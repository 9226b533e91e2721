// request_queue.h: requests wait here until a worker takes a batch of them; the threads around the policy.
//
//   What       submit() admits requests, take() gives a worker the batch that decide() (batch_policy.h)
//              chose, finish() says that it is over. A payload is the owner's handle, never looked at here.
//   Invariant  A payload that was admitted comes back exactly once: in a batch, or in an Owed. Its receiver
//              answers it, with no lock held.
//   Owed       Who takes a request out of the queue to answer it gets an Owed, and holds it until the answer
//              has been given; drain() waits until none is left. Of a batch, ran() gives it.
//   States     open -> draining (drain: nothing new, what waits runs without windows) -> closed (close).
//              Open or draining, it refuses while no worker is there: none could start, or the last hangs. In
//              a forked child every call gets `unavailable` and touches nothing.
//   Order      The policy's. Waiters for room, threads or not, get it first come, first served.
//   Returning  After a batch of two or more, as many callers are expected back as it answered, until a
//              quarter of its run time is over, or max_wait if that is less, and as long as
//              return_forecast.h says that it pays: a queue whose requests each have a thread of their own
//              soon stops waiting.
//   Hung       A batch that runs longer than hang_after is reported once by care(), and given up by hang():
//              its worker then gets false from ran(), so that no request is answered twice. A worker that
//              was replaced learns so from finish(), and ends.
//   Threads    Any. A ticket belongs to the thread that took it, but for abandon().
//   Blocks     submit() for room, until their deadline; take() and await_due() until a batch is
//              due; care() until there is something to care for; drain() until all is answered. Nothing else.
//   Inside     A thread that owes answers or runs a batch may drain(): it waits neither for its own nor for
//              those of others that do the same. A worker's requests that still wait stay for others to run.
//   Lifetime   close() it, answer what that gives, and join its waiters, before it is destroyed.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fork.h"
#include "base/status.h"
#include "base/sync.h"
#include "base/trace.h"
#include "batch/policy/batch_policy.h"
#include "batch/policy/return_forecast.h"
#include "batch/requests/histogram.h"
#include "batch/requests/waiting_list.h"
#include "runtime/admission/parked.h"

namespace heddle::batch {

struct QueueOptions {
  Limits limits;
  int lanes = 1;            // workers
  size_t capacity = 16384;  // requests that wait
  Duration hang_after = Duration::max();
  bool replace_hung = false;  // a hung worker; with several lanes always
};

struct Request {
  void* payload = nullptr;
  uint64_t group = 0;
  int64_t rows = 1;
  int64_t cost = 0;
  int priority = 0;
  TimePoint deadline = TimePoint::max();
};

class RequestQueue;

// Answers that its holder has yet to give. True: there are some.
class [[nodiscard]] Owed {
 public:
  Owed() = default;
  Owed(Owed&& other) noexcept
      : queue_(std::exchange(other.queue_, nullptr)),
        thread_(other.thread_),
        payloads_(std::move(other.payloads_)) {}
  Owed& operator=(Owed&& other) noexcept;
  ~Owed() { given(); }
  explicit operator bool() const { return queue_ != nullptr; }
  // None of a batch: its worker has them.
  const std::vector<void*>& payloads() const& { return payloads_; }
  void payloads() && = delete;  // they are answered while it is held

 private:
  friend class RequestQueue;
  Owed(RequestQueue& queue, uint64_t thread, std::vector<void*> payloads)
      : queue_(&queue), thread_(thread), payloads_(std::move(payloads)) {}
  void given();

  RequestQueue* queue_ = nullptr;
  uint64_t thread_ = 0;
  std::vector<void*> payloads_;
};

struct Work {
  uint64_t ticket = 0;  // 0: nothing to run, only what expired
  std::vector<void*> batch;
  Owed expired;
};

struct Care {
  Owed expired;
  std::vector<uint64_t> hung;  // tickets
  bool closed = false;
};

struct Hang {
  Owed owed;  // its batch, and as payloads what waited, if no other worker is there. False: it came back
  bool replace = false;
};

struct QueueHealth {
  int workers = 0;  // as many as there should be
  int serving = 0, hung = 0, restarts = 0;
  bool draining = false, closed = false;
  std::string reason;  // of the last trouble
};

struct QueueMetrics {
  size_t depth = 0, capacity = 0;
  int64_t depth_rows = 0;
  int running = 0;  // batches
  uint64_t submitted = 0, taken = 0, rejected = 0, expired = 0, cancelled = 0, refused = 0;
  uint64_t batches = 0, failed_batches = 0, hung_batches = 0;
  Histogram wait, form, run, scatter, total;   // ns: of a request; the middle three of a batch
  std::array<uint64_t, 24> batches_by_rows{};  // [i]: more than 2^(i-1) rows, and up to 2^i
  uint64_t rows = 0;
  double occupancy = 0;  // rows run / (batches * max_rows)
};

class RequestQueue {
 public:
  explicit RequestQueue(const QueueOptions& options, const Clock& clock = Clock::real());
  RequestQueue(const RequestQueue&) = delete;
  RequestQueue& operator=(const RequestQueue&) = delete;

  // Admits all or none; ids[i] is that of requests[i]. Full: waits for room until `room`.
  Status submit(std::span<const Request> requests, std::span<RequestId> ids, Deadline room);
  Result<RequestId> submit(const Request& request, Deadline room) {
    RequestId id = 0;
    HEDDLE_TRY(submit({&request, 1}, {&id, 1}, room));
    return id;
  }
  // Without waiting. False: full, and not counted as rejected; the caller may come back and wait.
  Result<bool> try_submit(std::span<const Request> requests, std::span<RequestId> ids, uint64_t seeker = 0);
  // Room for `wanted` requests, for those without a thread that waits. `then` is called once, with no lock
  // held: room is kept for this seeker until try_submit() or leave_room(), or there will be none, which
  // try_submit() tells.
  uint64_t seek_room(size_t wanted, std::function<void()> then);
  void leave_room(uint64_t seeker);  // idempotent; `then` may still be called
  Owed cancel(RequestId id);         // false: it waits no more

  // Blocks until a batch is due or something expired; gives it, or `unavailable` once the queue is closed.
  Result<Work> take(Deadline deadline);
  // take() in two steps, for workers that have to get something between (Python's GIL): wait until a batch is
  // due, then take what is due by then. Nothing: another worker was quicker.
  Status await_due(Deadline deadline);
  std::optional<Work> try_take();

  // The phases of a batch, in this order. False from ran(): the batch was abandoned and answered by others.
  void formed(uint64_t ticket);
  Owed ran(uint64_t ticket);
  // Over. With `linger`, its callers are still being woken, one by one: it counts as running until told(), so
  // that the next batch does not begin before they are back; at most for that long, and for max_wait.
  // False: the worker was replaced while it hung, and ends.
  bool finish(uint64_t ticket, bool failed, Duration linger = Duration::zero());
  void told(uint64_t ticket);
  Owed abandon(uint64_t ticket);  // true: it was running, and the caller of abandon() answers it

  Care care(Deadline deadline);
  Hang hang(uint64_t ticket);  // a ticket of care()'s
  // A worker could not start. Hands out what waits if it was the last: then nothing more is taken.
  Owed lost_worker(const std::string& why);
  bool worker_died(const std::string& why);  // true: another is to take its place
  Status drain(Deadline deadline);
  Owed close();
  bool closed() const;

  void set_limits(const Limits& limits);
  void set_capacity(size_t capacity);
  Limits limits() const;
  QueueMetrics metrics() const;
  QueueHealth health() const;

 private:
  friend class Owed;
  using Parked = Ref<runtime::Parked>;
  struct Waiter {  // who is told: a thread that sleeps, or a function
    Parked parked;
    std::function<void()> then;
    void grant() const { parked != nullptr ? parked->grant(0) : then(); }
    void refuse(const Status& why) const { parked != nullptr ? parked->refuse(why) : then(); }
  };
  struct Run {
    uint64_t ticket = 0;
    uint64_t thread = 0;  // its worker
    int64_t rows = 0;
    size_t requests = 0;
    TimePoint taken, formed, ran;
    std::vector<TimePoint> arrived;
    bool reported = false;
    bool expects = false;                  // its callers back
    bool answered = false;                 // its worker answers it, or has
    TimePoint over_at = TimePoint::max();  // finished, and lingers until then
    std::unique_ptr<trace::Span> phase;
  };
  struct State {
    WaitingList waiting;
    Limits limits;
    int lanes = 1;
    size_t capacity = 0;
    std::vector<Run> runs;
    uint64_t tickets = 0;
    int64_t in_flight = 0;  // rows in runs
    int64_t returning = 0;
    TimePoint returning_until = TimePoint::min();
    ReturnForecast forecast;
    RequestId newest = 0;   // ids grow with arrival
    RequestId held_at = 0;  // the newest, when a batch began to wait for callers to return; 0: none does
    bool draining = false, closed = false;
    Status refusal;
    int serving = 0, restarts = 0;  // workers
    std::map<uint64_t, bool> hung;  // tickets of workers that hang; true: it was replaced
    std::string reason;

    // Takers asleep, and how many of them were told to look. quiet: until then only a full batch, the last
    // returning caller or an earlier deadline can make something due.
    int asleep = 0, told = 0;
    uint64_t turn = 0;
    TimePoint quiet_until = TimePoint::min();

    size_t reserved = 0;  // room granted to waiters that have not yet come back for it
    struct RoomSeeker {
      Waiter waiter;
      size_t wanted;
      uint64_t number = 0;  // of those without a thread
    };
    std::deque<RoomSeeker> room_seekers;
    uint64_t seekers = 0;
    std::map<uint64_t, size_t> kept;  // of `reserved`, by the seekers' numbers
    struct Drainer {
      Parked parked;
      uint64_t thread;
      bool inside;  // it owes answers, or runs a batch
    };
    std::vector<Drainer> drainers;
    std::vector<uint64_t> answering;         // of each Owed that is out: the thread that got it
    TimePoint care_next = TimePoint::min();  // when care() looks again by itself
    QueueMetrics metrics;
  };
  using Shared = Guarded<State, Rank::kBatch>;
  using Waiters = std::vector<Waiter>;

  Status forked() const;
  Status takes(std::span<const Request> requests) const;
  Status admits(const State& state, size_t wanted) const;
  struct Admission {
    Status status;
    bool full = false;
    Parked parked;  // full, and may wait: for room, then try again
    bool tell = false, ring = false;
  };
  Admission admit(State& state, std::span<const Request> requests, std::span<RequestId> ids, bool may_wait,
                  bool reserved);
  void after(const Admission& admission) const;  // with no lock held
  Status await_room(const Parked& waiter, Deadline room);
  static bool tell_taker(State& state, bool at_once);  // true: notify one
  static Running running(State& state, TimePoint now);
  static Decision ask(State& state, TimePoint now);
  Owed owe(State& state, std::vector<void*> payloads);
  void answered(uint64_t thread);
  Owed expire(State& state, const Expire& decision);
  Work start(State& state, const Take& decision, TimePoint now) const;
  static Waiters grant_room(State& state);
  static bool let_go(State& state, uint64_t seeker);  // true: room was kept for it
  static void grant(const Waiters& waiters);          // with no lock held
  static Waiters now_idle(State& state);              // drainers that wait for nothing any more
  static Run* find(State& state, uint64_t ticket);
  static std::vector<void*> empty(State& state, Waiters& refused);  // takes all that wait
  static void end_run(State& state, uint64_t ticket);
  static bool came_back(State& state, uint64_t ticket);  // false: it was replaced
  static void end_lingering(State& state, TimePoint now);
  static bool is_idle(const State& state, bool inside);
  void tell_all(State& state);
  void ring() const;
  uint64_t rings_seen() const;

  const uint32_t born_ = fork_generation();
  const Duration hang_after_;
  const bool replaces_hung_;
  const Clock& clock_;
  mutable Shared state_;
  mutable Guarded<uint64_t, Rank::kHelpers> bell_;  // rung when care() has to look again
};

inline void Owed::given() {
  if (RequestQueue* const queue = std::exchange(queue_, nullptr)) queue->answered(thread_);
}

inline Owed& Owed::operator=(Owed&& other) noexcept {
  if (this == &other) return *this;
  given();
  queue_ = std::exchange(other.queue_, nullptr);
  thread_ = other.thread_;
  payloads_ = std::move(other.payloads_);
  return *this;
}

}  // namespace heddle::batch
