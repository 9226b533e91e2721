#include "runtime/admission/governor.h"

#include <algorithm>
#include <utility>

#include "base/fork.h"
#include "runtime/registry.h"
#include "runtime/thread_number.h"

namespace heddle::runtime {

Permit::~Permit() {
  if (governor_ != nullptr) governor_->leave(lane_);
}

void Permit::decline() {
  const Permit declined = std::move(*this);
  if (declined.lane_ == Governor::kNoLane) return;
  Atomic<uint64_t>& entered = declined.governor_->lanes_[static_cast<size_t>(declined.lane_)].entered;
  entered.store_relaxed(entered.load_relaxed() - 1);
}

Exclusive::~Exclusive() {
  if (governor_ != nullptr) governor_->end_exclusive();
}

Ref<Governor> Governor::make(std::string device, int limit) {
  Ref<Governor> governor(new Governor(std::move(device)));
  if (limit > 0) governor->set_limit_once(limit);
  return governor;
}

Governor::Governor(std::string device) : device_(std::move(device)), generation_(fork_generation()) {}

void Governor::set_limit_once(int limit) {
  limit = std::clamp(limit, 1, kMaxLimit);
  Answers answers;
  {
    auto queue = queue_.lock();
    if (limit_.load_relaxed() != 0) return;
    limit_.store_relaxed(limit);
    lanes_ = std::make_unique<LaneState[]>(static_cast<size_t>(limit));
    words_.open(limit, kCollected);
    queue->collected = limit;
    if (queue->held) return;
    words_.park();
    release_lanes(*queue);
    hand_over(*queue, answers);
  }
  answer(answers);
}

Result<Permit> Governor::enter(ModelId model, Deadline deadline, DuringHold during) {
  const int lane = words_.try_take(tag(model, kTaken), words_.last(), words_.places());
  if (lane != OwnerWords::kNone) [[likely]]
    return count_in(lane);
  return park(model, deadline, during);
}

Permit Governor::try_enter_lone(ModelId model, int lanes, Way way) {
  const int lane = words_.try_take(tag(model, way == Way::door ? kLone : kOnStream), words_.last(), lanes);
  return lane == OwnerWords::kNone ? Permit() : count_in(lane);
}

Status Governor::await_no_lone(ModelId model, Deadline deadline) {
  if (lone_and_on_streams(model) == 0) return {};
  Answers answers;
  bool over = false;
  {
    auto queue = queue_.lock();
    ++queue->draining;
    words_.park();  // a lone call that leaves tells us
    over = queue.wait_until(deadline, [&] { return lone_and_on_streams(model) == 0; });
    --queue->draining;
    hand_over(*queue, answers);
  }
  answer(answers);
  return over ? Status() : Status::deadline("still running: ", lone_and_on_streams(model), " calls");
}

Result<Permit> Governor::enter_copy(ModelId owner, Deadline deadline, DuringHold during) {
  uint64_t seen = copies_.load_relaxed();
  while ((seen & kHeldOff) == 0) {
    yield_point("governor.enter_copy");
    if (!copies_.cas_weak_acq_rel(seen, seen + 1)) [[unlikely]]
      continue;
    seam::did("governor.enter_copy");
    return Permit(this, kNoLane);
  }
  return park_copy(owner, deadline, during);
}

Permit Governor::admit(int lane, ModelId model) {
  if (lane == kNoLane) return Permit(this, lane);
  words_.pass_to(lane, tag(model, kTaken));
  return count_in(lane);
}

Permit Governor::count_in(int lane) {
  Atomic<uint64_t>& entered = lanes_[static_cast<size_t>(lane)].entered;
  entered.store_relaxed(entered.load_relaxed() + 1);
  return Permit(this, lane);
}

Result<Permit> Governor::park(ModelId model, Deadline deadline, DuringHold during) {
  auto parked = std::make_shared<Parked>();
  Answers answers;
  std::vector<std::weak_ptr<Holder>> holders;
  {
    auto queue = queue_.lock();
    if (queue->holder == this_thread_number()) return calls_while_it_holds();
    if (queue->held && during == DuringHold::step_aside) return Permit();
    ModelQueue& mine = queue->models[model];
    HEDDLE_TRY(mine.refused);
    words_.park();
    mine.callers.push_back({model, parked, during});
    seam::did("governor.wait");
    ++queue->waiting;
    hand_over(*queue, answers);
    if (answers.empty()) ++queue->parked_count;
    holders = queue->holders;
  }
  answer(answers);
  ask(holders);
  HEDDLE_TRY_ASSIGN(const int lane, await(parked, deadline, false, model));
  return lane == OwnerWords::kNone ? Permit() : admit(lane, model);
}

Result<Permit> Governor::park_copy(ModelId owner, Deadline deadline, DuringHold during) {
  auto parked = std::make_shared<Parked>();
  {
    auto queue = queue_.lock();
    if (queue->holder == kNobody || queue->holder == this_thread_number()) {
      copies_.add_relaxed(1);  // the lock orders it behind the last hold
      seam::did("governor.enter_copy");
      return Permit(this, kNoLane);
    }
    if (queue->held && during == DuringHold::step_aside) return Permit();
    HEDDLE_TRY(queue->models[owner].refused);
    queue->copies.push_back({owner, parked, during});
    seam::did("governor.wait_copy");
  }
  HEDDLE_TRY_ASSIGN(const int lane, await(parked, deadline, false, owner));
  return lane == OwnerWords::kNone ? Permit() : admit(lane, owner);
}

void Governor::ask_when_full(std::weak_ptr<Holder> holder) {
  auto queue = queue_.lock();
  std::erase_if(queue->holders, [](const auto& each) { return each.expired(); });
  queue->holders.push_back(std::move(holder));
}

void Governor::ask(const std::vector<std::weak_ptr<Holder>>& holders) {
  for (const auto& each : holders) {
    if (const Ref<Holder> living = each.lock()) living->send();
  }
}

Status Governor::calls_while_it_holds() const {
  return Status::invalid("this thread holds device '", device_,
                         "' exclusively and calls a model on it; release the exclusive hold first");
}

Status Governor::refuse_holder() const {
  if (alone_.read_on_relaxed() != this_thread_number()) [[likely]]
    return {};
  return calls_while_it_holds();
}

Result<Exclusive> Governor::exclusive(Deadline deadline) {
  if (fork_generation() != generation_) return forked();
  auto parked = std::make_shared<Parked>();
  Answers answers;
  std::vector<std::weak_ptr<Holder>> holders;
  {
    auto queue = queue_.lock();
    if (queue->holder == this_thread_number()) {
      return Status::invalid("this thread holds device '", device_,
                             "' exclusively already; an exclusive hold cannot be taken twice");
    }
    words_.park();
    queue->exclusives.emplace_back(parked, this_thread_number());
    seam::did("governor.ask_alone");
    hand_over(*queue, answers);
    holders = queue->holders;
  }
  answer(answers);
  ask(holders);
  HEDDLE_TRY(await(parked, deadline, true, ModelId::kForeign));
  return Exclusive(shared_from_this());
}

void Governor::leave_copy() {
  const bool awaited = copies_.sub_release(1) == (kHeldOff | 1);
  seam::did("governor.leave_copy", awaited);
  if (!awaited) [[likely]]
    return;
  if (fork_generation() != generation_) return;
  Answers answers;
  {
    auto queue = queue_.lock();
    hand_over(*queue, answers);
  }
  answer(answers);
}

void Governor::leave(int lane) {
  if (lane == kNoLane) return leave_copy();
  const ModelId model{words_.owner(lane) >> kTagBits};
  if (!words_.give_back(lane)) [[likely]]
    return;
  if (fork_generation() != generation_) return;
  Answers answers;
  {
    auto queue = queue_.lock();
    queue->models[model].served = ++queue->turn;  // its own next caller stands behind other models' callers
    seam::did("governor.served");
    hand_over(*queue, answers);
    if (queue->draining != 0) queue.notify_all();
  }
  answer(answers);
}

void Governor::put_back(int lane) {
  if (!words_.give_back(lane)) return;
  if (fork_generation() != generation_) return;
  Answers answers;
  {
    auto queue = queue_.lock();
    hand_over(*queue, answers);
  }
  answer(answers);
}

void Governor::end_exclusive() {
  if (fork_generation() != generation_) return;
  Answers answers;
  {
    auto queue = queue_.lock();
    release_collected(*queue, answers);
    queue->calls_first = true;
    hand_over(*queue, answers);
  }
  answer(answers);
}

void Governor::release_lanes(Queue& queue) {
  for (int lane = 0; lane < words_.places(); ++lane) {
    // Callers are parked: who asks for this hands them over.
    if (words_.owner(lane) == kCollected) static_cast<void>(words_.give_back(lane));
  }
  queue.collected = 0;
}

void Governor::release_collected(Queue& queue, Answers& answers) {
  release_lanes(queue);
  queue.holder = kNobody;
  queue.held = false;
  alone_.store_relaxed(kNobody);
  queue.collecting = nullptr;
  release_copies(queue, answers);
}

void Governor::release_copies(Queue& queue, Answers& answers) {
  copies_.add_relaxed(queue.copies.size());  // counted before the next holder looks
  seam::did("governor.count_copies", static_cast<int64_t>(queue.copies.size()));
  copies_.and_acq_rel(~kHeldOff);
  seam::did("governor.let_copies_in");
  for (Caller& copy : queue.copies) answers.push_back({std::move(copy.parked), kNoLane});
  queue.copies.clear();
}

void Governor::hand_over(Queue& queue, Answers& answers) {
  while (!queue.held) {
    const bool calls_wait = queue.waiting > 0;
    if (queue.holder == kNobody && !queue.exclusives.empty() && !(queue.calls_first && calls_wait)) {
      std::tie(queue.collecting, queue.holder) = std::move(queue.exclusives.front());
      queue.exclusives.pop_front();
      copies_.or_acq_rel(kHeldOff);
      seam::did("governor.hold_copies_off");
    }
    if (queue.holder != kNobody) {
      collect(queue, answers);
      return;
    }
    if (!calls_wait) {
      if (queue.draining == 0) words_.unpark();
      return;
    }
    const int lane = words_.take_parked(kGranted);
    if (lane != OwnerWords::kNone) {
      answers.push_back({next_caller(queue), lane});
      continue;
    }
    if (!queue.calls_first) return;
    queue.calls_first = false;  // they have had every lane there is: the next exclusive hold may collect
  }
}

void Governor::collect(Queue& queue, Answers& answers) {
  while (words_.take_parked(kCollected) != OwnerWords::kNone) ++queue.collected;
  if (queue.collected != limit_.load_relaxed()) return;
  const bool copies_left = copies_.load_acquire() != kHeldOff;
  seam::did("governor.look_for_copies", copies_left);
  if (copies_left) return;  // the last of them hands over
  queue.held = true;
  alone_.store_relaxed(queue.holder);
  ++queue.exclusive_count;
  answers.push_back({std::exchange(queue.collecting, nullptr), 0});
  send_aside(queue, answers);
}

void Governor::send_aside(Queue& queue, Answers& answers) {
  const auto sent = [&](const Caller& caller) {
    if (caller.during != DuringHold::step_aside) return false;
    answers.push_back({caller.parked, OwnerWords::kNone});
    return true;
  };
  for (auto& [id, model] : queue.models) queue.waiting -= std::erase_if(model.callers, sent);
  std::erase_if(queue.copies, sent);
}

Ref<Parked> Governor::next_caller(Queue& queue) {
  ModelQueue* next = nullptr;
  for (auto& [id, model] : queue.models) {
    if (!model.callers.empty() && (next == nullptr || model.served < next->served)) next = &model;
  }
  Ref<Parked> caller = std::move(next->callers.front().parked);
  next->callers.pop_front();
  next->served = ++queue.turn;
  --queue.waiting;
  return caller;
}

void Governor::answer(const Answers& answers) {
  for (const Answer& each : answers) each.caller->grant(each.lane);
}

Result<int> Governor::await(const Ref<Parked>& parked, Deadline deadline, bool for_exclusive, ModelId model) {
  const TimePoint since = Clock::real().now();
  auto given = parked->wait(deadline);
  if (!given.has_value()) {
    const bool withdrawn = withdraw(parked, for_exclusive, model);
    // Taken out of the queue just now: the answer is on its way, and an interrupt does not end this wait.
    while (!withdrawn && !given.has_value()) given = parked->wait(Deadline::never());
    if (withdrawn || (given->ok() && **given == OwnerWords::kNone)) {
      return Status::deadline("device '", device_, "' was busy until the deadline: ", limit(),
                              " submissions at once are allowed and others were in flight or waiting");
    }
  }
  const Duration waited = Clock::real().now() - since;
  if (waited > Duration(longest_wait_ns_.load_relaxed())) longest_wait_ns_.max_relaxed(waited.count());
  return std::move(*given);
}

bool Governor::withdraw(const Ref<Parked>& parked, bool for_exclusive, ModelId model) {
  Answers answers;
  bool found = false;
  {
    auto queue = queue_.lock();
    if (for_exclusive && queue->collecting == parked) {
      release_collected(*queue, answers);
      found = true;
    } else if (for_exclusive) {
      found = std::erase_if(queue->exclusives, [&](const auto& each) { return each.first == parked; }) != 0;
    } else {
      const auto is_it = [&](const Caller& each) { return each.parked == parked; };
      const size_t callers = std::erase_if(queue->models[model].callers, is_it);
      queue->waiting -= callers;
      found = callers + std::erase_if(queue->copies, is_it) != 0;
    }
    seam::did("governor.withdraw", found);
    hand_over(*queue, answers);
  }
  answer(answers);
  return found;
}

void Governor::refuse_parked(ModelId model, const Status& why) {
  std::deque<Caller> refused;
  Answers answers;
  {
    auto queue = queue_.lock();
    ModelQueue& parked = queue->models[model];
    parked.refused = why;
    refused.swap(parked.callers);
    queue->waiting -= refused.size();
    std::erase_if(queue->copies, [&](const Caller& each) {
      if (each.model != model) return false;
      refused.push_back(each);
      return true;
    });
    hand_over(*queue, answers);
  }
  for (const Caller& caller : refused) caller.parked->refuse(why);
  answer(answers);
}

void Governor::forget(ModelId model) {
  if (fork_generation() != generation_) return;
  auto queue = queue_.lock();
  const auto found = queue->models.find(model);
  if (found != queue->models.end() && found->second.callers.empty()) queue->models.erase(found);
}

Governor::Stats Governor::stats() const {
  Stats stats;
  const int lanes = words_.places();
  for (int lane = 0; lane < lanes; ++lane) {
    stats.entered += lanes_[static_cast<size_t>(lane)].entered.load_relaxed();
  }
  stats.longest_wait = Duration(longest_wait_ns_.load_relaxed());
  const auto queue = queue_.lock();
  stats.parked = queue->parked_count;
  stats.exclusives = queue->exclusive_count;
  const size_t waiting = queue->waiting + queue->copies.size() + queue->exclusives.size();
  stats.waiting = static_cast<int>(waiting) + (queue->collecting ? 1 : 0);
  stats.in_flight = lanes - words_.count(OwnerWords::kFree) - words_.count(kCollected);
  return stats;
}

}  // namespace heddle::runtime
