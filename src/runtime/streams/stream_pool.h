// stream_pool.h: hands out streams.
//
//   What       As many streams as Options says, made on first use. Stream 0 is the default stream, for any
//              caller; the others are leased. A thread gets the one that it had last. If it has that one
//              still, or had none, it gets the lowest free one; if another thread has it, the next free one
//              in turn. When all are leased: share, wait or fail, as Options::exhaustion says.
//   Invariant  A leased place has at least one lessee; it is free again when its last lessee returned it.
//              Only the lessee that took a free place makes or replaces its stream, before others can join. A
//              failed stream is discarded with its last lease; one that fails later, with the next.
//   share      Joins the working stream with the fewest lessees, of those the one with the least in flight.
//              Submissions take turns.
//   wait       First come first served; a returned place is handed over; waiters do not poll.
//   fail       A lease is refused only when other leases, and callers that lease now, are as many as places.
//   Cost       A thread that leases its last place again writes no cache line that other threads write: the
//              place's word, its lessees and its reference to the pool have lines of their own.
//   Threads    Any. A lease may be dropped by any thread, also after the pool's runtime has ended.
//   Blocks     lease(): to make a stream on first use; with Exhaustion::wait until a place is returned or the
//              deadline passed.
//   Lifetime   A lease keeps the pool. Each place has a reference of its own to it, which its leases share;
//              the end of the last reference that make() gave ends those.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/admission/owner_words.h"
#include "runtime/admission/parked.h"
#include "runtime/options.h"
#include "runtime/streams/roster.h"

namespace heddle::runtime {

class StreamPool;

class StreamLease {  // move-only
 public:
  StreamLease() = default;
  StreamLease(StreamLease&& other) noexcept : pool_(std::move(other.pool_)), place_(other.place_) {}
  StreamLease& operator=(StreamLease&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(place_, other.place_);
    return *this;
  }
  ~StreamLease();
  explicit operator bool() const { return pool_ != nullptr; }
  Stream& operator*() const;
  Stream* operator->() const { return &**this; }
  const Ref<Stream>& stream() const;
  bool shared() const;  // others lease the same stream now

 private:
  friend class StreamPool;
  StreamLease(Ref<StreamPool> pool, int place) : pool_(std::move(pool)), place_(place) {}
  Ref<StreamPool> pool_;
  int place_ = 0;
};

class StreamPool {
 public:
  static constexpr int kMaxStreams = 1024;
  static Result<Ref<StreamPool>> make(Ref<Roster> roster, const Options& options);

  Result<StreamLease> lease();                   // waits at most Options::stream_wait_max
  Result<StreamLease> lease(Deadline deadline);  // matters to Exhaustion::wait only
  // A place of one's own or nothing, whatever Exhaustion says.
  Result<std::optional<StreamLease>> try_lease();
  Result<Ref<Stream>> default_stream();  // a new one after the last has failed
  void close();                          // refuses leases and wakes waiters: unavailable

  int limit() const { return limit_; }
  struct Stats {
    int leased = 0;       // places taken now
    int lessees = 0;      // leases out now
    uint64_t joined = 0;  // leases that share
    uint64_t waited = 0;  // leases that had to wait
    // The most places taken at once, as seen by threads that took one which another thread had before, and
    // here. They look at one place after another: one that is returned meanwhile may be counted.
    int most_leased = 0;
    uint64_t discarded = 0;  // failed streams
  };
  Stats stats() const;

 private:
  friend class StreamLease;
  struct alignas(64) Place {
    // 0: free, or being taken. The taker stores 1 when the stream is ready (release); lessees join by n ->
    // n + 1, never from 0.
    Atomic<int> lessees{0};
    // Written only by the lessee that takes the place, while lessees is 0.
    Ref<Stream> stream;
    uint64_t taker = 0;      // the thread that took the place last, by its number
    Ref<StreamPool> keeper;  // written by make(), and ended with the last reference that make() gave
  };
  struct Queue {
    std::deque<Ref<Parked>> waiting;
    bool closed = false;
    uint64_t waited = 0;
    Ref<Stream> default_stream;
  };

  using Answers = std::vector<std::pair<Ref<Parked>, int>>;
  // In a place's word, beside the numbers of threads.
  static constexpr uint64_t kDefaultStreams = ~uint64_t{0}, kHandedOver = kDefaultStreams - 1;

  StreamPool(Ref<Roster> roster, const Options& options);
  int try_take();
  int take_undisturbed();
  Result<StreamLease> occupy(int place);
  void count_taken() const;
  Result<StreamLease> join();
  int join_least_loaded();
  Result<int> wait_for_place(Deadline deadline);
  Status exhausted(std::string_view also) const;
  void leave(int place);
  void discard_failed(Place& place);  // by the one that has the place
  void put_back(int place);
  void hand_over(Queue& queue, Answers& answers);
  static void answer(const Answers& answers);
  void tell_seekers();
  void tell_changes();

  const Ref<Roster> roster_;
  const Exhaustion exhaustion_;
  const Duration wait_max_;
  const int limit_;
  const uint32_t generation_;  // fork_generation() of the maker
  // Place 0 is never free here. Parked callers wait for a place: Exhaustion::wait. A thread that parks looks
  // at the words afterwards, a thread that gives a place back looks whether callers are parked afterwards:
  // all seq_cst, so one of them sees the other (owner_words.h).
  OwnerWords words_;
  std::vector<Place> places_;   // limit_ of them
  Atomic<bool> closed_{false};  // set once, by close(); read by lease(). It publishes nothing: relaxed
  // A caller that finds neither a free place nor one to join (all are being made) announces itself in
  // seekers_, looks once more, and sleeps until changes_ differs. A thread that makes a place joinable or
  // free then reads seekers_. The first lessee's count, words and seekers_ are written and read seq_cst, so
  // the two cannot miss each other. A place that the seeker saw free and did not get is another thread's,
  // which makes it joinable or free again, and then reads seekers_.
  Atomic<int> seekers_{0};
  // Added with release, behind the change, and read with acquire, before the looks: who has read a change
  // finds what changed, closed_ too.
  Atomic<uint32_t> changes_{0};
  mutable Atomic<int> most_leased_{0};
  // Written by threads that do not lease a place of their own: apart from what those read that do.
  alignas(64) Atomic<uint64_t> joined_{0};  // statistics, as is the next
  Atomic<uint64_t> discarded_{0};
  mutable Guarded<Queue, Rank::kPool> queue_;
};

inline const Ref<Stream>& StreamLease::stream() const {
  return pool_->places_[static_cast<size_t>(place_)].stream;
}
inline Stream& StreamLease::operator*() const { return *stream(); }

}  // namespace heddle::runtime
