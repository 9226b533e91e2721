#include "drivers/host/tuning/fastest.h"

#include <algorithm>
#include <vector>

namespace heddle::host {
namespace {

// Than the best: such a way is not run again. A first run brings memory and code in, which for a short way is
// most of its time.
constexpr double kMuchSlowerAtFirst = 2.0, kMuchSlower = 0.5;
constexpr double kRival = 0.15;  // than the best: such a way may still be the best
constexpr int kConfirming = 2;   // rounds

struct Times {
  Duration shortest = Duration::max(), second = Duration::max();
  bool in_question = true;

  void add(Duration time) {
    if (time < shortest) std::swap(time, shortest);
    second = std::min(second, time);
  }
  bool within(double part, Duration of) const {
    return static_cast<double>(shortest.count()) <= (1 + part) * static_cast<double>(of.count());
  }
  bool agree() const {
    return static_cast<double>(second.count()) <= (1 + kAgree) * static_cast<double>(shortest.count());
  }
};

}  // namespace

Result<std::optional<size_t>> fastest(size_t ways, Duration most, const Clock& clock, const TimeWay& time) {
  if (ways < 2) return ways == 1 ? std::optional<size_t>(0) : std::nullopt;
  const TimePoint begin = clock.now();
  std::vector<Times> all(ways);
  int confirmed = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < ways; ++i) {
      if (!all[i].in_question) continue;
      const Result<Duration> taken = time(i);
      if (taken.status().code() == Code::unavailable) return std::optional<size_t>();
      if (!taken.ok()) return taken.status();
      all[i].add(*taken);
      const Duration so_far = clock.now() - begin;
      const bool no_round_fits = round == 0 && i == 0 && so_far > most / static_cast<Duration::rep>(ways);
      if (so_far > most || no_round_fits) return std::optional<size_t>();
    }
    const auto best = std::ranges::min(all, {}, &Times::shortest).shortest;
    if (best == Duration::max()) return std::optional<size_t>();
    if (best < kShort && round + 1 < kRoundsOfShort) continue;
    const double much = round == 0 ? kMuchSlowerAtFirst : kMuchSlower;
    for (Times& one : all) one.in_question = one.in_question && one.within(much, best);
    if (!std::ranges::all_of(all, [](const Times& one) { return !one.in_question || one.agree(); })) continue;
    const auto chosen = std::ranges::find_if(all, [&](const Times& one) { return one.within(kNoise, best); });
    if (chosen == all.begin() || confirmed == kConfirming)
      return std::optional<size_t>(static_cast<size_t>(chosen - all.begin()));
    ++confirmed;
    for (Times& one : all) one.in_question = one.in_question && one.within(kRival, best);
  }
  return std::optional<size_t>();
}

}  // namespace heddle::host
