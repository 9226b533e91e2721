#include "base/first_uses.h"

#include <bit>

#include "base/made_once.h"
#include "base/process_exit.h"
#include "base/seam.h"

namespace heddle {

FirstUses& FirstUses::of_process() {
  static constinit MadeOnce<FirstUses> only;
  return only.get();
}

void FirstUses::note(const std::set<std::string>& kinds) {
  if (fork_generation() != generation_) return;  // a child may find the lock taken
  if (seam::simulated()) return;                 // what earlier seeds have run is no decision of this one's
  {
    auto state = state_.lock();
    const uint64_t before = state->uses++;
    bool is_new = before < kFirst || std::has_single_bit(before);
    for (const std::string& kind : kinds) is_new = state->kinds.insert(kind).second || is_new;
    if (!is_new) return;
    ++state->registered;
  }
  renew_exit_handler();
}

uint64_t FirstUses::registered() const { return state_.lock()->registered; }

}  // namespace heddle
