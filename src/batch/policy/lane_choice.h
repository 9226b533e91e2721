// lane_choice.h: over how many lanes the batches of one model are spread, learnt from the rows served.
//
//   What       Many lanes of few rows each read the weights as often as there are lanes, few lanes of many
//              rows read them seldom but wait for their callers. Which serves more depends on the model, the
//              processors, and on what the callers do in between (Python's wait for each other), so it is
//              measured: rows per second with the lanes chosen, in turn with those of half or twice as many.
//              It begins in the middle: as many steps from one lane as from all; with one lane where it is
//              known that callers come back one at a time (suggest_one).
//   Trial      What was served from some runs after the change on, for a few milliseconds. A choice is left
//              for one that served 5 % more in two trials of two, each against the trial before it. Where
//              both neighbours are no better, the next look at them comes after twice as many trials, up to
//              64. A rate that jumps says that the callers are others, and the looks begin anew.
//   Threads    One at a time: the owner's lock. `now` is when a run ended: runs may be told a little out of
//              order.
//   Blocks     Never.
//   Source     Hill climbing over a geometric grid, with the interval between looks doubled as long as
//              they bring nothing.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace heddle::batch {

class LaneChoice {
 public:
  static constexpr Duration kTrial = std::chrono::milliseconds(4);
  static constexpr Duration kGap = std::chrono::milliseconds(50);  // between two runs: the trial begins anew
  static constexpr double kGain = 1.05;
  static constexpr int kMostTrials = 64, kSettled = 8;

  explicit LaneChoice(int most) : most_(most), home_(first_of(most)), tried_(home_) {}

  int lanes() const { return tried_; }
  int chosen() const { return home_; }  // of those that were looked at the best
  // For calls that do not meet: all, until it is known that others serve more.
  int for_lone_calls() const { return judged_ ? home_ : most_; }
  // All of them serve most, and several looks elsewhere brought nothing.
  bool settled_on_all() const { return home_ == most_ && (most_ == 1 || wait_ >= kSettled); }
  // Before anything was measured; later it changes nothing.
  void suggest_one();
  // A run of so many rows is over, and callers compete for lanes.
  void served(int64_t rows, TimePoint now);
  void forget_trial() { last_ = TimePoint::min(); }  // rows are served that it is not told of

 private:
  static int first_of(int most);
  void begin_trial(TimePoint now);
  void end_trial(double rate);
  void leave_home();
  void judge(double ratio);
  void turn();
  int neighbour() const { return up_ ? home_ * 2 : (home_ + 1) / 2; }
  bool has_neighbour() const { return up_ ? home_ < most_ : home_ > 1; }

  const int most_;
  int home_, tried_;     // equal: not looking elsewhere
  bool judged_ = false;  // two numbers of lanes have been compared, or one was suggested
  bool up_ = false;      // the neighbour that is looked at next
  int rejected_ = 0;     // of the two neighbours
  int wins_ = 0;         // of this neighbour
  int wait_ = 1;         // trials at home between looks
  int trials_ = 0;       // of them so far
  double home_rate_ = 0;

  TimePoint begin_ = TimePoint::min(), last_ = TimePoint::min();
  int runs_ = 0;
  int64_t rows_ = 0;
};

}  // namespace heddle::batch
