// The points where threads meet, of control.h.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "state.h"

namespace heddle::metal_double {
namespace {

// Not a measure of anything: it turns a hang into a failure.
constexpr auto kPatience = std::chrono::seconds(20);

struct MeetingPoint {
  std::atomic<bool> on{false};  // spares those who pass by the lock
  std::mutex lock;
  std::condition_variable changed;
  int needed = 0;
  int here = 0;
  uint64_t times = 0, rounds = 0, met = 0, missed = 0;

  void begin(int count, uint64_t wanted) {
    const std::lock_guard held(lock);
    release();
    needed = count;
    times = wanted;
    met = missed = 0;
    on = count > 1 && wanted > 0;
  }
  void arrive() {
    std::unique_lock held(lock);
    if (!on) return;
    if (++here == needed) {
      ++met;
      on = met < times;
      release();
      return;
    }
    const uint64_t round = rounds;
    if (changed.wait_for(held, kPatience, [&] { return rounds != round; })) return;
    ++missed;
    on = false;
    release();
  }
  void release() {
    here = 0;
    ++rounds;
    changed.notify_all();
  }
};

MeetingPoint& point(Meeting where) {
  // Never destroyed: threads of the double outlive main().
  static auto* const points = new std::array<MeetingPoint, static_cast<size_t>(Meeting::kCount)>;
  return (*points)[static_cast<size_t>(where)];
}

Meeting named(std::string_view name) {
  constexpr std::array<std::string_view, static_cast<size_t>(Meeting::kCount)> names = {"run", "commit",
                                                                                        "compile", "encode"};
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<Meeting>(i);
  }
  std::fprintf(stderr, "metal_double: there is no meeting '%.*s'; there are run, commit, compile, encode\n",
               static_cast<int>(name.size()), name.data());
  std::abort();
}

template <class Number>
Number read(Meeting where, Number MeetingPoint::* number) {
  MeetingPoint& at = point(where);
  const std::lock_guard held(at.lock);
  return at.*number;
}

}  // namespace

void meet(Meeting where, int count, uint64_t times) { point(where).begin(count, times); }
uint64_t met(Meeting where) { return read(where, &MeetingPoint::met); }
uint64_t missed(Meeting where) { return read(where, &MeetingPoint::missed); }

void arrive(Meeting where) {
  if (point(where).on) point(where).arrive();
}
void end_meetings() {
  for (size_t i = 0; i < static_cast<size_t>(Meeting::kCount); ++i) meet(static_cast<Meeting>(i), 0, 0);
}

}  // namespace heddle::metal_double

using heddle::metal_double::named;

void metal_double_meet(const char* where, int count, uint64_t times) {
  heddle::metal_double::meet(named(where), count, times);
}
uint64_t metal_double_met(const char* where) { return heddle::metal_double::met(named(where)); }
uint64_t metal_double_missed(const char* where) { return heddle::metal_double::missed(named(where)); }
