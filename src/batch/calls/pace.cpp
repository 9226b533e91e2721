#include "batch/calls/pace.h"

#include <utility>

#include "base/yield.h"
#include "batch/calls/forming_batch.h"

namespace heddle::batch {

namespace {

thread_local Pace::Scope* innermost = nullptr;
thread_local bool has_turn = false;

}  // namespace

Pace::Scope::Scope(Pace& pace)
    : pace_(fork_generation() == pace.born_ ? &pace : nullptr), outer_(std::exchange(innermost, this)) {
  if (pace_ == nullptr) return;
  if (std::exchange(has_turn, false)) pace_->turn_.store_relaxed(false);
  pace_->tell_while(pace_->most_);
}

Pace::Scope::~Scope() {
  passed();
  innermost = outer_;
}

void Pace::Scope::await_turn() {
  if (pace_ == nullptr || pace_->spin_ == Duration(0)) return;
  const Deadline end = Deadline::in(pace_->spin_);
  const auto is_free = [&] { return !pace_->turn_.load_relaxed() && !pace_->turn_.exchange_acq_rel(true); };
  while (!is_free() && !end.expired()) relax_processor(8);
  has_turn = true;
}

void Pace::Scope::passed() {
  if (!std::exchange(told_, false)) return;
  --pace_->state_.lock()->on_the_way;
  pace_->tell_while(1);
}

Pace* Pace::of_this_thread() { return innermost == nullptr ? nullptr : innermost->pace_; }

void Pace::begin_call() {
  if (innermost != nullptr) innermost->passed();
}

void Pace::count_as_told() { innermost->told_ = true; }

void Pace::add(Ref<FormingBatch> batch) {
  state_.lock()->line.push_back(std::move(batch));
  tell_while(most_);
}

void Pace::tell_while(int fewer_than) {
  for (;;) {
    Ref<FormingBatch> batch;
    {
      auto state = state_.lock();
      if (state->line.empty() || state->on_the_way >= fewer_than) return;
      batch = state->line.front();
      ++state->on_the_way;
    }
    const Member* const told = batch->tell_one();
    if (told != nullptr && told->pace != nullptr) continue;
    auto state = state_.lock();
    --state->on_the_way;
    const bool is_over = told == nullptr;
    if (is_over && !state->line.empty() && state->line.front() == batch) state->line.pop_front();
  }
}

}  // namespace heddle::batch
