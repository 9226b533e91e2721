#include "base/sync.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace heddle {

namespace {

constexpr std::array<std::string_view, kRanks> kRankNames = {
    "batch",  "registry", "cache",     "model",   "pool",  "governor", "stream",
    "buffer", "timeline", "allocator", "helpers", "trace", "log",
};

struct Counts {  // statistics: order nothing
  Atomic<uint64_t> acquisitions;
  Atomic<uint64_t> contentions;
  Atomic<uint64_t> longest_wait_ns;
};
constinit std::array<Counts, kRanks> counts;

Counts& counts_of(Rank rank) { return counts[static_cast<size_t>(rank)]; }

// One bit per rank: ranks strictly increase, so a thread holds each at most once.
constinit thread_local uint32_t held_ranks = 0;

uint32_t bit(Rank rank) { return 1u << static_cast<uint32_t>(rank); }

std::string names(uint32_t ranks) {
  std::string out;
  for (int i = 0; i < kRanks; ++i) {
    if ((ranks >> i & 1u) == 0) continue;
    if (!out.empty()) out += ", ";
    out += kRankNames[static_cast<size_t>(i)];
  }
  return out;
}

[[noreturn]] void die(const std::string& what) {
#if defined(HEDDLE_SIM)
  if (seam::simulated()) seam::fail(what);
#endif
  std::fputs(("heddle: " + what + "\n").c_str(), stderr);
  std::abort();
}

}  // namespace

std::string_view name(Rank rank) { return kRankNames[static_cast<size_t>(rank)]; }

namespace lock_order {

void enter(Rank rank) {
  const uint32_t same_or_inner = held_ranks & ~(bit(rank) - 1);
  if (same_or_inner != 0) [[unlikely]] {
    die("lock order: '" + std::string(name(rank)) + "' is taken while '" + names(same_or_inner) +
        "' is held; ranks must strictly increase");
  }
  held_ranks |= bit(rank);
}

void leave(Rank rank) { held_ranks &= ~bit(rank); }

void check_waits_alone(Rank rank) {
  const uint32_t others = held_ranks & ~bit(rank);
  if (others != 0) [[unlikely]] {
    die("lock order: a wait on '" + std::string(name(rank)) + "' while '" + names(others) +
        "' is held; release it before waiting");
  }
}

void check_none(const char* what) {
  if (held_ranks != 0) [[unlikely]] {
    die("lock order: " + std::string(what) + " is made while '" + names(held_ranks) +
        "' is held; release it first");
  }
}

}  // namespace lock_order

constinit Atomic<bool> RankedMutex::counting_{false};
constinit Atomic<InterruptCheck> RankedMutex::interrupt_{nullptr};

void ask_while_waiting(InterruptCheck check) { RankedMutex::interrupt_.store_release(check); }

InterruptCheck interrupt_check() { return RankedMutex::interrupt_.load_acquire(); }

bool RankedMutex::asked_without_lock(InterruptCheck check, Rank rank, std::unique_lock<Mutex>& held) {
  held.unlock();
#ifndef NDEBUG
  lock_order::leave(rank);
#endif
  const bool asked = check();
#ifndef NDEBUG
  lock_order::enter(rank);
#else
  static_cast<void>(rank);
#endif
  held.lock();
  return asked;
}

void RankedMutex::lock_counted(Rank rank) {
  Counts& mine = counts_of(rank);
  mine.acquisitions.add_relaxed(1);
  if (mutex_.try_lock()) return;
  mine.contentions.add_relaxed(1);
  const TimePoint start = Clock::real().now();
  mutex_.lock();
  mine.longest_wait_ns.max_relaxed(static_cast<uint64_t>((Clock::real().now() - start).count()));
}

void RankedMutex::count_try(Rank rank, bool got) {
  if (got) counts_of(rank).acquisitions.add_relaxed(1);  // a failed try did not wait
}

void set_lock_counting(bool on) { RankedMutex::counting_.store_relaxed(on); }

std::vector<LockCounts> read_lock_counts() {
  std::vector<LockCounts> out;
  for (int i = 0; i < kRanks; ++i) {
    const Counts& c = counts[static_cast<size_t>(i)];
    out.push_back({kRankNames[static_cast<size_t>(i)], c.acquisitions.load_relaxed(),
                   c.contentions.load_relaxed(), c.longest_wait_ns.load_relaxed()});
  }
  return out;
}

void clear_lock_counts() {
  for (Counts& c : counts) {
    c.acquisitions.store_relaxed(0);
    c.contentions.store_relaxed(0);
    c.longest_wait_ns.store_relaxed(0);
  }
}

}  // namespace heddle
