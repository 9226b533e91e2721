// first_runs.h: keeps the handler of exit() behind what a driver's library makes when steps first run.
//
//   What       oneDNN makes static kernels when a primitive of a new kind first runs: calls must have ended
//              before those die. note() registers the handler again (process_exit.h) after the first run of a
//              program with a step that no program of this process has run. What is new in a step need not
//              show in its words: so also after the first kFirstPrograms programs, and at each doubling of
//              their number.
//   Bound      Registrations are for good. There are at most kFirstPrograms, one for each kind, and 64.
//   Threads    Any.
//   Blocks     Briefly, on a lock.
//   Lifetime   The process; never destroyed.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "base/sync.h"

namespace heddle {

class FirstRuns {
 public:
  static constexpr uint64_t kFirstPrograms = 64;

  static FirstRuns& of_process();

  // A program has run for the first time; of each step its operator and its implementation, in words.
  void note(const std::set<std::string>& kinds);
  uint64_t registered() const;

 private:
  struct State {
    std::set<std::string> kinds;
    uint64_t programs = 0, registered = 0;
  };
  Guarded<State, Rank::kLog> state_;
};

}  // namespace heddle
