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

namespace heddle {

class Strategy {
 public:
  // The numbers of threads that may go on. The first `free` of them go on without a preemption, the others at
  // the price of one. Those from `ready` on sleep until a deadline, which passes if they are chosen.
  struct Turn {
    std::span<const uint32_t> threads;  // at least one
    size_t free, ready;
  };
  Strategy() = default;
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;
  virtual ~Strategy() = default;

  virtual size_t next(const Turn& turn) = 0;
  virtual size_t among(size_t options) = 0;  // of equals: which sleeper is woken; below `options`
  virtual size_t stale(size_t options) = 0;  // which value a load finds: 0 is the newest, 1 the one before
  virtual std::string describe() const = 0;  // for a report: what repeats this schedule
};

// Depth first: runs the same choices again up to the last one that has an option left, and takes that.
class SystematicChoices final : public Strategy {
 public:
  struct Bounds {
    size_t preemptions = 0;
    size_t stale = 0;  // loads that find another value than the newest
  };

  explicit SystematicChoices(Bounds bounds) : bounds_(bounds) {}
  // One schedule alone, as describe() gave it. Empty bounds and no choices for words that it did not give.
  static SystematicChoices replay(std::string_view words);
  SystematicChoices(SystematicChoices&& other) noexcept
      : bounds_(other.bounds_), path_(std::move(other.path_)) {}

  void begin() {  // before each run
    at_ = spent_ = stale_ = 0;
    diverged_ = false;
  }
  // After each run: whether there is another schedule.
  bool advance();
  // This run had other choices than the one before it with the same beginning.
  bool diverged() const { return diverged_ || at_ < path_.size(); }

  size_t next(const Turn& turn) override;
  size_t among(size_t options) override;
  size_t stale(size_t options) override;
  std::string describe() const override;

 private:
  struct Choice {
    size_t taken, options;  // options 0: not known, of a replay
  };
  Bounds bounds_;
  std::vector<Choice> path_;
  size_t at_ = 0, spent_ = 0, stale_ = 0;
  bool diverged_ = false;
};

// Threads have random priorities, the highest of those that can runs. At depth - 1 random steps the running
// thread gets a priority below all others. With n threads and k steps a bug that takes `depth` orderings of
// steps is met with a probability of at least 1 / (n * k^(depth - 1)).
class RandomPriorities final : public Strategy {
 public:
  RandomPriorities(uint64_t seed, size_t steps, size_t depth);
  size_t next(const Turn& turn) override;
  size_t among(size_t options) override { return static_cast<size_t>(numbers_.below(options)); }
  size_t stale(size_t) override { return 0; }
  std::string describe() const override;
  size_t steps() const { return step_; }       // that there were
  size_t threads() const { return threads_; }  // that could run at once, at most

 private:
  uint64_t& priority_of(uint32_t thread);
  const uint64_t seed_;
  SeededNumbers numbers_;
  std::vector<size_t> changes_;       // at which steps, in order
  std::vector<uint64_t> priorities_;  // by number; the highest goes first
  size_t step_ = 0, threads_ = 0, changed_ = 0;
};

}  // namespace heddle

#endif
