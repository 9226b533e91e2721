#include "runtime/streams/stream_pool.h"

#include <algorithm>
#include <tuple>

#include "base/fork.h"
#include "base/own_count.h"
#include "runtime/registry.h"
#include "runtime/thread_number.h"

namespace heddle::runtime {

namespace {

Status closed_status() { return Status::unavailable("the stream pool is closed: its runtime has ended"); }

}  // namespace

StreamLease::~StreamLease() {
  if (pool_ != nullptr) pool_->leave(place_);
}

bool StreamLease::shared() const {
  return pool_->places_[static_cast<size_t>(place_)].lessees.load_relaxed() > 1;
}

Result<Ref<StreamPool>> StreamPool::make(Ref<Roster> roster, const Options& options) {
  if (options.streams < 2 || options.streams > kMaxStreams) {
    return Status::invalid("a pool of ", options.streams, " streams was asked for; it must be 2 to ",
                           kMaxStreams, ", the default stream included");
  }
  const Ref<StreamPool> pool(new StreamPool(std::move(roster), options));
  Ref<StreamPool> owner(pool.get(), [pool](StreamPool*) {
    for (Place& place : pool->places_) place.keeper.reset();
  });
  for (Place& place : pool->places_) place.keeper = own_count(pool);
  return owner;
}

StreamPool::StreamPool(Ref<Roster> roster, const Options& options)
    : roster_(std::move(roster)),
      exhaustion_(options.exhaustion),
      wait_max_(options.stream_wait_max),
      limit_(options.streams),
      generation_(fork_generation()),
      places_(static_cast<size_t>(limit_)) {
  words_.open(limit_, OwnerWords::kFree);
  static_cast<void>(words_.try_take_at(0, kDefaultStreams));
}

int StreamPool::try_take() {
  const uint64_t me = this_thread_number();
  const int last = words_.last();
  // Whoever has it still wants another one, and fewer streams are made when that is the lowest.
  return words_.try_take(me, words_.owner(last) == me ? 0 : last, limit_);
}

// try_take() may find each place taken when it looks there, although some place was free at any time. Here
// nobody takes a place meanwhile but threads that had begun to, so each taken place has a lessee or a taker
// of its own. For Exhaustion::fail alone, where nobody is parked and nobody seeks.
int StreamPool::take_undisturbed() {
  const auto queue = queue_.lock();
  words_.park();
  const int place = words_.take_parked(this_thread_number());
  words_.unpark();
  return place;
}

Result<StreamLease> StreamPool::lease() {
  if (!closed_.load_relaxed() && fork_generation() == generation_) [[likely]] {
    if (const int place = try_take(); place != OwnerWords::kNone) [[likely]]
      return occupy(place);
  }
  return lease(Deadline::in(wait_max_));
}

Result<StreamLease> StreamPool::lease(Deadline deadline) {
  if (fork_generation() != generation_) [[unlikely]]
    return forked();
  if (closed_.load_relaxed()) [[unlikely]]
    return closed_status();
  if (const int place = try_take(); place != OwnerWords::kNone) [[likely]]
    return occupy(place);
  switch (exhaustion_) {
    case Exhaustion::share:
      return join();
    case Exhaustion::fail:
      if (const int place = take_undisturbed(); place != OwnerWords::kNone) return occupy(place);
      return exhausted("");
    case Exhaustion::wait:
      break;
  }
  HEDDLE_TRY_ASSIGN(const int place, wait_for_place(deadline));
  words_.pass_to(place, this_thread_number());
  return occupy(place);
}

Result<std::optional<StreamLease>> StreamPool::try_lease() {
  if (fork_generation() != generation_) return forked();
  if (closed_.load_relaxed()) return closed_status();
  const int place = try_take();
  if (place == OwnerWords::kNone) return std::optional<StreamLease>();
  HEDDLE_TRY_ASSIGN(StreamLease lease, occupy(place));
  return std::optional<StreamLease>(std::move(lease));
}

Result<StreamLease> StreamPool::occupy(int place) {
  Place& mine = places_[static_cast<size_t>(place)];
  discard_failed(mine);  // its work may have failed since the last lease ended
  if (mine.stream == nullptr) [[unlikely]] {
    auto made = roster_->make(place);
    if (!made.ok()) {
      put_back(place);
      return made.status();
    }
    mine.stream = std::move(made).value();
  }
  const uint64_t me = this_thread_number();
  const bool had_by_another = std::exchange(mine.taker, me) != me;
  mine.lessees.store_seq_cst(1);  // from here on others may join: pairs with join_least_loaded()
  seam::did("pool.occupy", place);
  tell_seekers();
  if (had_by_another) [[unlikely]]
    count_taken();
  return StreamLease(mine.keeper, place);
}

void StreamPool::count_taken() const {
  const int most = most_leased_.load_relaxed();
  if (most == limit_ - 1) return;
  const int taken = limit_ - 1 - words_.count(OwnerWords::kFree);
  if (taken > most) most_leased_.max_relaxed(taken);
}

Result<StreamLease> StreamPool::join() {
  for (;;) {
    seekers_.add_seq_cst(1);
    seam::did("pool.seek");
    const uint32_t seen = changes_.load_acquire();
    seam::did("pool.see_changes");
    int place = try_take();
    const bool took = place != OwnerWords::kNone;
    if (!took) place = join_least_loaded();
    if (place == OwnerWords::kNone && !closed_.load_relaxed()) changes_.wait(seen);
    seekers_.sub_relaxed(1);
    seam::did("pool.end_seek");
    if (took) return occupy(place);
    if (place != OwnerWords::kNone) {
      joined_.add_relaxed(1);
      return StreamLease(places_[static_cast<size_t>(place)].keeper, place);
    }
    if (closed_.load_relaxed()) return closed_status();
  }
}

int StreamPool::join_least_loaded() {
  struct Load {
    int place;
    int lessees;
    uint64_t in_flight;
    bool failed;
  };
  std::vector<Load> loads;
  for (const Ref<Stream>& stream : roster_->living()) {
    const int place = stream->id().index;
    if (place < 1) continue;
    const int lessees = places_[static_cast<size_t>(place)].lessees.load_seq_cst();  // pairs with occupy()
    if (lessees > 0) loads.push_back({place, lessees, stream->in_flight(), stream->failed()});
  }
  std::sort(loads.begin(), loads.end(), [](const Load& a, const Load& b) {
    return std::tie(a.failed, a.lessees, a.in_flight, a.place) <
           std::tie(b.failed, b.lessees, b.in_flight, b.place);
  });
  for (const Load& load : loads) {
    Atomic<int>& lessees = places_[static_cast<size_t>(load.place)].lessees;
    for (int seen = lessees.load_relaxed(); seen > 0;) {
      if (!lessees.cas_weak_acq_rel(seen, seen + 1)) continue;
      seam::did("pool.join", load.place);
      return load.place;
    }
  }
  return OwnerWords::kNone;
}

Result<int> StreamPool::wait_for_place(Deadline deadline) {
  auto parked = std::make_shared<Parked>();
  Answers answers;
  {
    auto queue = queue_.lock();
    if (queue->closed) return closed_status();
    words_.park();
    queue->waiting.push_back(parked);
    seam::did("pool.wait");
    hand_over(*queue, answers);
    if (answers.empty()) ++queue->waited;
  }
  answer(answers);
  answers.clear();

  auto given = parked->wait(deadline);
  if (given.has_value()) return std::move(*given);
  bool withdrawn = false;
  {
    auto queue = queue_.lock();
    withdrawn = std::erase(queue->waiting, parked) != 0;
    seam::did("pool.withdraw", withdrawn);
    // Ends the parking when no caller is left, and may find a place whose last lessee waits for this lock.
    if (withdrawn) hand_over(*queue, answers);
  }
  answer(answers);
  if (withdrawn)
    return Status::make(Code::deadline, exhausted(" None was returned until the deadline.").message());
  return std::move(
      *parked->wait(Deadline::never()));  // taken out of the queue just now: the answer is on its way
}

void StreamPool::hand_over(Queue& queue, Answers& answers) {
  while (!queue.waiting.empty()) {
    const int place = words_.take_parked(kHandedOver);
    if (place == OwnerWords::kNone) return;
    answers.emplace_back(std::move(queue.waiting.front()), place);
    queue.waiting.pop_front();
  }
  words_.unpark();
}

void StreamPool::answer(const Answers& answers) {
  for (const auto& [caller, place] : answers) caller->grant(place);
}

void StreamPool::leave(int place) {
  if (fork_generation() != generation_) [[unlikely]]
    return;
  Place& mine = places_[static_cast<size_t>(place)];
  const bool last = mine.lessees.sub_acq_rel(1) == 1;
  seam::did("pool.leave", last);
  if (!last) return;
  if (mine.stream != nullptr && mine.stream->timeline()->holds_back()) mine.stream->send();
  discard_failed(mine);
  put_back(place);
}

void StreamPool::discard_failed(Place& place) {
  if (place.stream == nullptr || !place.stream->failed()) [[likely]]
    return;
  discarded_.add_relaxed(1);
  roster_->forget(place.stream);
  place.stream.reset();
}

void StreamPool::put_back(int place) {
  const bool parked = words_.give_back(place);
  tell_seekers();
  if (!parked) [[likely]]
    return;
  Answers answers;
  {
    auto queue = queue_.lock();
    hand_over(*queue, answers);
  }
  answer(answers);
}

void StreamPool::tell_seekers() {
  const bool any = seekers_.load_seq_cst() != 0;
  seam::did("pool.look_for_seekers", any);
  if (any) [[unlikely]]
    tell_changes();
}

void StreamPool::tell_changes() {
  changes_.add_release(1);
  seam::did("pool.tell_changes");
  changes_.notify_all();
}

Status StreamPool::exhausted(std::string_view also) const {
  return Status::exhausted("all ", limit_ - 1, " streams of the pool are leased.", also,
                           " End threads or release their streams, raise Options::streams (at most ",
                           kMaxStreams, "), or let Options::exhaustion be share",
                           exhaustion_ == Exhaustion::fail ? " or wait" : "");
}

Result<Ref<Stream>> StreamPool::default_stream() {
  if (fork_generation() != generation_) [[unlikely]]
    return forked();
  if (closed_.load_relaxed()) return closed_status();
  {
    const auto queue = queue_.lock();
    if (queue->default_stream != nullptr && !queue->default_stream->failed()) return queue->default_stream;
  }
  HEDDLE_TRY_ASSIGN(Ref<Stream> made, roster_->make(0));
  Ref<Stream> failed;  // dies after the lock
  {
    auto queue = queue_.lock();
    if (queue->default_stream != nullptr && !queue->default_stream->failed()) return queue->default_stream;
    failed = std::exchange(queue->default_stream, made);
  }
  if (failed != nullptr) {
    discarded_.add_relaxed(1);
    roster_->forget(failed);
  }
  return made;
}

void StreamPool::close() {
  closed_.store_relaxed(true);
  seam::did("pool.close");
  std::deque<Ref<Parked>> waiting;
  {
    auto queue = queue_.lock();
    queue->closed = true;
    waiting.swap(queue->waiting);
    seam::did("pool.close_queue");
    words_.unpark();
  }
  for (const Ref<Parked>& caller : waiting) caller->refuse(closed_status());
  tell_changes();
}

StreamPool::Stats StreamPool::stats() const {
  count_taken();
  Stats stats;
  for (const Place& place : places_) {
    const int lessees = place.lessees.load_relaxed();
    stats.lessees += lessees;
    stats.leased += lessees > 0 ? 1 : 0;
  }
  stats.joined = joined_.load_relaxed();
  stats.discarded = discarded_.load_relaxed();
  stats.most_leased = most_leased_.load_relaxed();
  stats.waited = queue_.lock()->waited;
  return stats;
}

}  // namespace heddle::runtime
