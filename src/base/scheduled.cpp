// What a Simulation does where a Strategy decides.
#include <algorithm>
#include <utility>

#include "base/simulation.h"

#if defined(HEDDLE_SIM)

namespace heddle {

namespace {

uint64_t bit(uint32_t number) { return uint64_t{1} << (number - 1); }

}  // namespace

uint64_t Simulation::ready_ones() const {
  uint64_t out = 0;
  for (const Actor* const each : living_) {
    if (each->state == Actor::kReady) out |= bit(each->number);
  }
  return out;
}

bool Simulation::may_run(const Actor& actor) const {
  return actor.state == Actor::kReady && (actor.fair.behind & ready_ones()) == 0;
}

std::vector<uint32_t> Simulation::others_ready() const {
  std::vector<uint32_t> out;
  const auto add = [&](bool behind_me) {
    for (const Actor* const each : living_) {
      if (each != current_ && (each->number > current_->number) == behind_me && may_run(*each))
        out.push_back(each->number);
    }
  };
  add(true);
  add(false);
  return out;
}

// All that decides how the threads can go on, apart from the preemptions that are left.
uint64_t Simulation::state() const {
  if (pasts_ == nullptr) return 0;
  uint64_t out =
      Pasts::mixed({idle_rounds_, static_cast<uint64_t>(now().time_since_epoch().count()), pasts_->all()});
  for (const Actor* const each : living_) {
    // Who gives way goes behind those that could run ever since, and did not.
    out = Pasts::mixed({out, each->number, each->state,
                        each->cpu_steps + (each == current_ ? steps - runs_since_ : 0),
                        each->fair.could & ~each->fair.ran, each->fair.behind,
                        (each->let_go ? 1u : 0u) + (each->stepped_out ? 2u : 0u)});
  }
  return out;
}

// The chosen one runs next: who was behind it is not any more.
Simulation::Actor& Simulation::choose(std::vector<uint32_t>& threads, Strategy::Turn turn) {
  turn.ready = threads.size();
  if (armed_) {
    const Actor* late = nullptr;
    for (const Actor* const each : living_) {
      if (each->state != Actor::kAsleep || each->sleep.until == TimePoint::max()) continue;
      if (late == nullptr || each->sleep.until < late->sleep.until) late = each;
    }
    if (late != nullptr) threads.push_back(late->number);
  }
  turn.threads = threads;
  for (Actor* const each : living_) {  // the put-off choice is made as if it were then
    if (turn.unnoticed) each->before = each->fair;
    if (turn.owed) each->fair = each->before;
  }
  if (!turn.unnoticed) turn.state = state();
  const size_t taken = armed_ ? options_.strategy->next(turn) : 0;
  owes = turn.unnoticed;
  Actor& next = actors_[threads[taken] - 1];
  if (taken >= turn.ready) skip_to(next.sleep.until);
  const uint64_t can = ready_ones();
  for (Actor* const each : living_) {
    each->fair.ran |= bit(next.number);
    each->fair.could &= can;
    each->fair.behind &= ~bit(next.number);
  }
  return next;
}

void Simulation::decide_by_strategy(const char* at, const void* word) {
  if (steps == 0 || actors_.size() > 64) fail("a strategy has at most 64 threads");
  quiet = 0;
  expire();
  if (!armed_ || current_->stepped_out || std::exchange(current_->let_go, false)) return;
  const bool unnoticed = pasts_ != nullptr && word != nullptr && !pasts_->is_shared(word);
  turn_by_strategy(at, {.free = 1, .unnoticed = unnoticed});
}

void Simulation::decide_owed(const char* at, const void* word) {
  if (pasts_->is_shared(word)) turn_by_strategy(at, {.free = 1, .owed = true});
}

void Simulation::turn_by_strategy(const char* at, Strategy::Turn turn) {
  std::vector<uint32_t> threads{current_->number};
  for (const uint32_t other : others_ready()) threads.push_back(other);
  Actor& next = choose(threads, turn);
  if (&next != current_) hand_over(next, at);
}

void Simulation::give_way_by_strategy(const char* at) {
  quiet = 0;
  expire();
  Actor& me = *current_;
  const uint64_t ready = ready_ones();
  me.fair.behind |= me.fair.could & ready & ~me.fair.ran & ~bit(me.number);
  me.fair.could = ready;
  me.fair.ran = 0;
  std::vector<uint32_t> threads = others_ready();
  if (!threads.empty()) {
    idle_rounds_ = 0;
    return hand_over(choose(threads, {.free = threads.size()}), at);
  }
  // Longer each time.
  const Duration longer{int64_t{1000} << std::min<uint64_t>(idle_rounds_++, 20)};
  skip_to(std::min(earliest(), now() + longer));
}

void Simulation::line_up() {
  ++lined_up_;
  wake(&lined_up_, seam::kAll);
  while (!armed_) sleep({.key = &armed_, .at = "line up"});
  current_->let_go = by_strategy();
}

void Simulation::let_go(int threads) {
  while (lined_up_ < threads) sleep({.key = &lined_up_, .at = "line up"});
  inside_ = threads;
  armed_ = true;
  stands_ = by_strategy() && options_.strategy->time_stands();
  stands_since_ = steps;
  if (pasts_ != nullptr) pasts_->meet(true);
  wake(&armed_, seam::kAll);
  while (inside_ != 0) sleep({.key = &inside_, .at = "let go"});
  lined_up_ = 0;
}

void Simulation::step_out() {
  current_->stepped_out = true;
  if (--inside_ != 0) return;
  armed_ = stands_ = owes = false;
  if (pasts_ != nullptr) pasts_->meet(false);
  wake(&inside_, seam::kAll);
}

}  // namespace heddle

#endif
