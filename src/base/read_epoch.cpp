#include "base/read_epoch.h"

namespace heddle {

uint32_t ReadEpoch::next_stripe() {
#if defined(HEDDLE_SIM)
  if (seam::simulated()) return seam::thread_number() % kStripes;  // equal seeds, equal stripes
#endif
  static constinit Atomic<uint32_t> next{0};  // deals stripes out in turn; orders nothing
  return next.add_relaxed(1) % kStripes;
}

bool ReadEpoch::all_left(Grace& grace, uint32_t parity) const {
  for (uint32_t i = 0; i < kStripes; ++i) {
    if ((grace.stripes_pending >> i & 1u) == 0) continue;
    // One look at zero is enough: a reader that enters later finds what is published now.
    const bool left = (stripes_[i].counters[parity].load_seq_cst() & kInsideMask) == 0;
    seam::did("read_epoch.look", 2 * i + (left ? 1 : 0));
    if (left) grace.stripes_pending &= ~(1u << i);
  }
  return grace.stripes_pending == 0;
}

bool ReadEpoch::passed(Grace& grace) {
  const uint32_t now = parity_.load_relaxed() & 1;
  if (!grace.turned) {
    if (!all_left(grace, now ^ 1)) return false;
    parity_.store_relaxed(now ^ 1);
    seam::did("read_epoch.turn");
    grace.turned = true;
    grace.stripes_pending = kAllStripes;
    return all_left(grace, now);
  }
  return all_left(grace, now ^ 1);
}

uint64_t ReadEpoch::entries() const {
  uint64_t sum = 0;
  for (const Stripe& stripe : stripes_) {
    for (const Atomic<uint64_t>& counter : stripe.counters) sum += counter.load_relaxed() >> kInsideBits;
  }
  return sum;
}

}  // namespace heddle
