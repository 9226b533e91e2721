#include "drivers/host/tuning/tuner.h"

#include <algorithm>
#include <utility>

#include "base/seam.h"

namespace heddle::host {

Tuner::Tuner(Options options)
    : options_(std::move(options)),
      file_(options_.folder.empty()
                ? std::nullopt
                : std::optional<TuningFile>(std::in_place, options_.folder, options_.identity)),
      begin_(options_.clock->now()) {
  if (!file_) return;
  Result<Decisions> kept = file_->read();
  if (!kept.ok()) {
    options_.warn(
        text("measured ways of products are not used and will be measured anew: ", kept.status().message()));
    return;
  }
  state_.lock()->decisions = *std::move(kept);
}

Tuner::~Tuner() {
  if (unsaved_) keep();
}

std::optional<Way> Tuner::decided(const TuningKey& key, const std::vector<Way>& ways) const {
  const auto state = state_.lock();
  const auto found = state->decisions.find(key);
  if (found == state->decisions.end() || std::ranges::find(ways, found->second) == ways.end())
    return std::nullopt;
  return found->second;
}

Duration Tuner::time_for(const TuningKey& key) const {
  const auto state = state_.lock();
  if (options_.all) return kMostOfShapeThen;
  const auto share = std::chrono::duration_cast<Duration>(kShare * (options_.clock->now() - begin_));
  const Duration left = std::min(share - state->spent, kMostOfShape);
  const auto tried = state->given_up.find(key);
  const Duration needed = tried == state->given_up.end() ? kLeast : 2 * tried->second;
  return left < needed ? Duration(0) : left;
}

Result<std::optional<Way>> Tuner::decide(const TuningKey& key, const std::vector<Way>& ways,
                                         const TimeWay& time) {
  if (const std::optional<Way> known = decided(key, ways)) return known;
  // A simulation owns the time and the threads of its own.
  if (ways.size() < 2 || seam::simulated() || measuring_.exchange_acq_rel(true)) return std::optional<Way>();
  struct Done {
    ~Done() { measuring.store_release(false); }
    Atomic<bool>& measuring;
  } const done{measuring_};
  const Duration most = time_for(key);
  if (most == Duration(0)) return std::optional<Way>();
  const TimePoint begin = options_.clock->now();
  const Result<std::optional<size_t>> chosen = fastest(ways.size(), most, *options_.clock, time);
  const Duration taken = options_.clock->now() - begin;
  const bool found = chosen.ok() && chosen->has_value();
  {
    auto state = state_.lock();
    state->spent += taken;
    if (found) state->decisions.insert_or_assign(key, ways[**chosen]);
    if (!found) state->given_up.insert_or_assign(key, taken);
  }
  HEDDLE_TRY(chosen.status());
  if (!found) return std::optional<Way>();
  unsaved_ = true;
  keep();
  const std::optional<Way> kept = decided(key, ways);  // another process's, if that came first
  return kept ? kept : std::optional<Way>(ways[**chosen]);
}

void Tuner::keep() {
  if (!file_ || unwritable_) return;
  Decisions decisions = state_.lock()->decisions;
  const Status merged = file_->merge(decisions);
  if (merged.code() == Code::unavailable) return;  // at the next chance
  unsaved_ = false;
  if (!merged.ok()) {
    unwritable_ = true;
    options_.warn(text("measured ways of products are kept for this process only: ", merged.message()));
    return;
  }
  state_.lock()->decisions = std::move(decisions);
}

}  // namespace heddle::host
