// first_uses.h: keeps the handler of exit() behind what a driver's library makes when it is first used.
//
//   What       oneDNN makes static tables when a primitive of a new kind is made, and static kernels when it
//              first runs: calls must have ended before those die. note() registers the handler again
//              (process_exit.h) after a use of a kind that this process has not seen. What is new in a step
//              need not show in its words: so also after the first kFirst uses, and at each doubling of their
//              number.
//   Bound      Registrations are for good. There are at most kFirst, one for each kind, and 64.
//   Threads    Any.
//   Fork       note() does nothing in a child.
//   Blocks     Briefly, on a lock.
//   Lifetime   The process; never destroyed.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "base/fork.h"
#include "base/sync.h"

namespace heddle {

class FirstUses {
 public:
  static constexpr uint64_t kFirst = 128;

  static FirstUses& of_process();

  // A program was made, or has run for the first time; of each step what was done, its operator and its
  // implementation, in words. Or a library was used otherwise.
  void note(const std::set<std::string>& kinds);
  uint64_t registered() const;

 private:
  struct State {
    std::set<std::string> kinds;
    uint64_t uses = 0, registered = 0;
  };
  Guarded<State, Rank::kLog> state_;
  const uint32_t generation_ = fork_generation();
};

}  // namespace heddle
