#include "batch/policy/lane_choice.h"

#include <algorithm>

namespace heddle::batch {

namespace {

constexpr double kJump = 1.5;  // of the rate at home, either way
constexpr int kWins = 2;

}  // namespace

int LaneChoice::first_of(int most) {
  int lanes = most;
  while (lanes * lanes > 2 * most) lanes = (lanes + 1) / 2;
  return lanes;
}

void LaneChoice::served(int64_t rows, TimePoint now) {
  if (most_ == 1) return;
  if (last_ == TimePoint::min() || now - last_ > kGap) begin_trial(now);
  last_ = now;
  const int settled = tried_ + 4;  // runs that were under way, and those that their callers made next
  ++runs_;
  if (runs_ <= settled) {
    begin_ = now;
    return;
  }
  rows_ += rows;
  if (now - begin_ < kTrial || runs_ < 2 * settled) return;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  end_trial(static_cast<double>(rows_) / seconds);
  begin_trial(now);
}

void LaneChoice::suggest_one() {
  if (judged_ || home_rate_ > 0) return;
  judged_ = true;
  home_ = tried_ = 1;
}

void LaneChoice::begin_trial(TimePoint now) {
  begin_ = now;
  runs_ = 0;
  rows_ = 0;
}

void LaneChoice::end_trial(double rate) {
  if (tried_ != home_) {
    tried_ = home_;
    trials_ = 0;
    return judge(rate / home_rate_);
  }
  const bool jumped = home_rate_ > 0 && std::max(rate / home_rate_, home_rate_ / rate) > kJump;
  home_rate_ = rate;
  if (jumped) {
    wait_ = 1;
    rejected_ = wins_ = 0;
  }
  if (++trials_ >= (wins_ > 0 ? 1 : wait_)) leave_home();
}

void LaneChoice::leave_home() {
  if (!has_neighbour()) turn();
  tried_ = std::min(neighbour(), most_);
}

void LaneChoice::judge(double ratio) {
  judged_ = true;
  if (ratio >= kGain && ++wins_ < kWins) return;
  if (ratio >= kGain) {
    home_ = std::min(neighbour(), most_);
    tried_ = home_;
    home_rate_ *= ratio;
    wait_ = 1;
    rejected_ = 0;
  } else {
    turn();
  }
  wins_ = 0;
}

// Towards the other neighbour. With both rejected the next look comes later.
void LaneChoice::turn() {
  up_ = !up_;
  if (++rejected_ < 2) return;
  rejected_ = 0;
  wait_ = std::min(2 * wait_, kMostTrials);
}

}  // namespace heddle::batch
