// strategy.h: who goes on, decided by something else than a seed.
//
//   What       A Simulation with a Strategy asks it at each choice, and takes nothing else from chance: no
//              stall, no wait that ends for no reason, no slow thread. SystematicChoices goes through all
//              schedules with at most so many preemptions; RandomPriorities draws one, so that a bug of a
//              given depth is met with a known probability.
//   Preemption A switch away from a thread that could go on. So counts a deadline that passes while others
//              could run: time jumps to it.
//   Sources    Musuvathi and Qadeer, "Iterative context bounding for systematic testing of multithreaded
//              programs", PLDI 2007 (CHESS). Burckhardt, Kothari, Musuvathi and Nagarakatte, "A randomized
//              scheduler with probabilistic guarantees of finding bugs", ASPLOS 2010 (PCT).
//   Threads    One at a time: the simulation's thread that runs, then whoever reads it afterwards.
//   Blocks     Never.
#pragma once

#if defined(HEDDLE_SIM)

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/seeded_numbers.h"
#include "base/seen.h"

namespace heddle {

class Strategy {
 public:
  // The numbers of threads that may go on. The first `free` of them go on without a preemption, the others at
  // the price of one. Those from `ready` on sleep until a deadline, which passes if they are chosen.
  struct Turn {
    std::span<const uint32_t> threads = {};  // at least one
    size_t free = 0, ready = 0;
    uint64_t state = 0;      // of a simulation that keeps one (shared_words): equal ones go on alike
    bool unnoticed = false;  // by others is what the running thread comes to: it goes on
    bool owed = false;       // the choice was put off from the last turn that was unnoticed
  };
  Strategy() = default;
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;
  virtual ~Strategy() = default;

  virtual size_t next(const Turn& turn) = 0;
  virtual size_t among(size_t options) = 0;  // of equals: which sleeper is woken; below `options`
  virtual size_t stale(size_t options) = 0;  // which value a load finds: 0 is the newest, 1 the one before
  virtual std::string describe() const = 0;  // for a report: what repeats this schedule
  virtual SharedWords* shared_words() { return nullptr; }  // for a simulation that keeps states (base/seen.h)
  virtual bool time_stands() const { return false; }       // it passes by jumps alone, not by steps
};

// Depth first: runs the same choices again up to the last one that has an option left, and takes that. With
// Seen it takes no option that a schedule took from an equal state with as many preemptions left. Where there
// is no other one the rest of the schedule has first options and no choice. With a Share so has the rest of
// one of another share.
class SystematicChoices final : public Strategy {
 public:
  struct Bounds {
    size_t preemptions = 0;
    size_t stale = 0;  // loads that find another value than the newest
  };

  // Of all schedules, by their first choices, one in so many.
  struct Share {
    static constexpr size_t kChoices = 8;
    size_t which = 0, of = 1;
  };

  explicit SystematicChoices(Bounds bounds, Seen* seen = nullptr)
      : SystematicChoices(bounds, seen, Share()) {}
  SystematicChoices(Bounds bounds, Seen* seen, Share share) : bounds_(bounds), share_(share), seen_(seen) {}
  // One schedule alone, as describe() gave it. Empty bounds and no choices for words that it did not give.
  static SystematicChoices replay(std::string_view words);
  SystematicChoices(SystematicChoices&& other) noexcept
      : bounds_(other.bounds_), share_(other.share_), seen_(other.seen_), path_(std::move(other.path_)) {}

  void begin() {  // before each run
    at_ = spent_ = stale_ = came_ = 0;
    diverged_ = cut_ = false;
  }
  // After each run: whether there is another schedule.
  bool advance();
  // This run had other choices than the one before it with the same beginning.
  bool diverged() const { return diverged_ || at_ < path_.size(); }
  bool is_of_share() const;  // after a run: it was one of this share's

  SharedWords* shared_words() override { return seen_ == nullptr ? nullptr : &seen_->shared; }
  bool time_stands() const override { return true; }

  size_t next(const Turn& turn) override;
  size_t among(size_t options) override { return choose(options, 0, 0); }
  size_t stale(size_t options) override;
  std::string describe() const override;

 private:
  struct Choice {
    size_t taken, options;  // options 0: not known, of a replay
    uint64_t left_out = 0;  // a bit for each option that was explored from an equal state
    uint64_t state = 0;     // of the simulation there
    size_t place = 0;       // of how many, with those that were put off
  };
  bool is_new() const { return at_ == path_.size() && !cut_; }
  size_t choose(size_t options, uint64_t left_out, uint64_t state);

  Bounds bounds_;
  Share share_;
  Seen* seen_;
  std::vector<Choice> path_;
  size_t at_ = 0, spent_ = 0, stale_ = 0;
  size_t came_ = 0;  // choices that this run has come to, with those that were put off
  bool diverged_ = false;
  bool cut_ = false;  // no more choices in this run
};

// Threads have random priorities, the highest of those that can runs. At depth - 1 random steps the running
// thread gets a priority below all others. With n threads and k steps a bug that takes `depth` orderings of
// steps is met with a probability of at least 1 / (n * k^(depth - 1)).
class RandomPriorities final : public Strategy {
 public:
  RandomPriorities(uint64_t seed, size_t steps, size_t depth, SharedWords* shared = nullptr);
  size_t next(const Turn& turn) override;
  size_t among(size_t options) override { return static_cast<size_t>(numbers_.below(options)); }
  size_t stale(size_t) override { return 0; }
  SharedWords* shared_words() override { return shared_; }
  std::string describe() const override;
  size_t steps() const { return step_; }       // that there were
  size_t threads() const { return threads_; }  // that could run at once, at most

 private:
  uint64_t& priority_of(uint32_t thread);
  const uint64_t seed_;
  SharedWords* const shared_;  // where what a run shares is noted; null: nowhere
  SeededNumbers numbers_;
  std::vector<size_t> changes_;       // at which steps, in order
  std::vector<uint64_t> priorities_;  // by number; the highest goes first
  size_t step_ = 0, threads_ = 0, changed_ = 0;
};

}  // namespace heddle

#endif
