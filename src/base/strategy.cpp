#include "base/strategy.h"

#if defined(HEDDLE_SIM)

#include <algorithm>
#include <charconv>

#include "base/seen.h"

namespace heddle {

namespace {

// A number, and the character behind it; moves on.
bool take_number(std::string_view& words, size_t& number, char& behind) {
  const auto [end, error] = std::from_chars(words.data(), words.data() + words.size(), number);
  if (error != std::errc()) return false;
  words.remove_prefix(static_cast<size_t>(end - words.data()));
  behind = words.empty() ? '\0' : words.front();
  if (!words.empty()) words.remove_prefix(1);
  return true;
}

// Behind the last option none is left out, and a turn has at most 63: of 64 threads one waits for the others.
bool is_left_out(uint64_t left_out, size_t option) {
  return (left_out >> std::min<size_t>(option, 63) & 1) != 0;
}

}  // namespace

bool SystematicChoices::advance() {
  while (!path_.empty()) {
    Choice& last = path_.back();
    do ++last.taken;
    while (is_left_out(last.left_out, last.taken));
    if (last.taken < last.options) return true;
    path_.pop_back();
  }
  return false;
}

// By the choices that all schedules behind them have in common, so that shares of any sizes come out even.
bool SystematicChoices::is_of_share() const {
  uint64_t mixed = 0;
  for (size_t i = 0; i < std::min(Share::kChoices, path_.size()); ++i)
    mixed = SeededNumbers(mixed + path_[i].taken + 1).next();
  return mixed % share_.of == share_.which;
}

size_t SystematicChoices::next(const Turn& turn) {
  const size_t options = spent_ < bounds_.preemptions ? turn.threads.size() : turn.free;
  if (options <= 1) return 0;
  if (turn.unnoticed) {
    ++came_;
    return 0;
  }
  if (turn.owed) --came_;
  // The same thread by its deadline is another one.
  const auto name = [&](size_t option) { return turn.threads[option] + (option < turn.ready ? 0u : 256u); };
  uint64_t left_out = 0;
  // Where choices are repeated the states are this schedule's own.
  if (seen_ != nullptr && is_new()) {
    const size_t left = bounds_.preemptions - spent_;
    std::vector<SeenStates::Option> each;
    for (size_t i = 0; i < options; ++i) each.push_back({name(i), left - (i < turn.free ? 0 : 1)});
    left_out = seen_->states.met(turn.state, each);
  }
  const size_t taken = choose(options, left_out, turn.state);
  if (taken >= turn.free) ++spent_;
  if (seen_ != nullptr && at_ == path_.size()) {
    if (taken != 0) seen_->states.forget_way();
    seen_->states.take(turn.state, name(taken));
  }
  return taken;
}

size_t SystematicChoices::stale(size_t options) {
  const size_t taken = among(stale_ < bounds_.stale ? options : 1);
  if (taken != 0) ++stale_;
  return taken;
}

size_t SystematicChoices::choose(size_t options, uint64_t left_out, uint64_t state) {
  if (options <= 1) return 0;
  const size_t place = came_++;
  if (is_new()) {
    size_t first = 0;
    while (is_left_out(left_out, first)) ++first;
    cut_ = first == options || (at_ == Share::kChoices && !is_of_share());
    if (!cut_) path_.push_back({first, options, left_out, state, place});
  }
  if (at_ == path_.size()) return 0;
  Choice& choice = path_[at_++];
  if (choice.options == 0) choice = {choice.taken, options, 0, state, place};
  if (choice.options != options || choice.state != state || choice.place != place) diverged_ = true;
  return std::min(choice.taken, options - 1);
}

// Bounds, then each choice that is not the first option, behind the number of first options before it.
std::string SystematicChoices::describe() const {
  std::string out = std::to_string(bounds_.preemptions) + "." + std::to_string(bounds_.stale) + ":";
  size_t next = 0;
  for (size_t i = 0; i < at_ && i < path_.size(); ++i) {
    if (path_[i].taken == 0) continue;
    out += std::to_string(path_[i].place - next) + "+" + std::to_string(path_[i].taken) + ",";
    next = path_[i].place + 1;
  }
  return out;
}

SystematicChoices SystematicChoices::replay(std::string_view words) {
  Bounds bounds;
  char behind = 0;
  if (!take_number(words, bounds.preemptions, behind) || behind != '.' ||
      !take_number(words, bounds.stale, behind) || behind != ':')
    return SystematicChoices({});
  SystematicChoices out(bounds);
  for (size_t before = 0, taken = 0; take_number(words, before, behind) && behind == '+' &&
                                     take_number(words, taken, behind) && behind == ',';) {
    out.path_.resize(out.path_.size() + before, {0, 0, 0, 0, 0});
    out.path_.push_back({taken, 0, 0, 0, 0});
  }
  return out;
}

RandomPriorities::RandomPriorities(uint64_t seed, size_t steps, size_t depth, SharedWords* shared)
    : seed_(seed), shared_(shared), numbers_(seed) {
  for (size_t i = 1; i < depth; ++i) changes_.push_back(1 + static_cast<size_t>(numbers_.below(steps)));
  std::sort(changes_.begin(), changes_.end());
}

uint64_t& RandomPriorities::priority_of(uint32_t thread) {
  // Above those that a change gives, which are 0 to depth - 2.
  while (priorities_.size() <= thread) priorities_.push_back(numbers_.next() | uint64_t{1} << 63);
  return priorities_[thread];
}

size_t RandomPriorities::next(const Turn& turn) {
  ++step_;
  const auto ready = turn.threads.first(std::max<size_t>(1, turn.ready));
  threads_ = std::max(threads_, ready.size());
  const auto highest = [&] {
    return std::max_element(ready.begin(), ready.end(), [&](uint32_t one, uint32_t other) {
      return priority_of(one) < priority_of(other);
    });
  };
  while (changed_ < changes_.size() && step_ >= changes_[changed_]) {
    priority_of(*highest()) = changes_.size() - changed_ - 1;
    ++changed_;
  }
  return static_cast<size_t>(highest() - ready.begin());
}

std::string RandomPriorities::describe() const { return "priorities of seed " + std::to_string(seed_); }

}  // namespace heddle

#endif
