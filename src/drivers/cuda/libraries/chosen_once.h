// chosen_once.h: the best of the ways to compute a problem: algorithms of a library's and kernels of ours.
//
//   What       choose() gives the way of a problem. It is measured once, when the first program that has the
//              problem is made, and kept for other processes (algorithm_store.h). Problems that differ in how
//              many rows they have are measured as one (alike.h), with the most rows; where the library
//              refuses the algorithm for one of them, that one is measured by itself.
//   Rule       taken(): the fastest way, or one that is as good as that and needs less workspace, which each
//              call that runs holds. A way of ours with a gain above 1 has to be faster by that.
//   Off        HEDDLE_TUNE=off: nothing is measured, and the library's caller has a rule of its own.
//   Threads    Any.
//   Blocks     choose(): for as long as the measurement takes, some milliseconds.
//   Errors     exhausted: there was no memory to measure with. The next program asks anew.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/once_map.h"
#include "base/process_exit.h"
#include "drivers/cuda/libraries/algorithm_store.h"
#include "drivers/cuda/libraries/library_call.h"

namespace heddle::cuda {

// ---- the rule

struct Measured {
  float time = 0;  // any unit
  uint64_t workspace_bytes = 0;
  bool ours = false;
  float gain = 1;  // by which it has to beat an algorithm of the library's that needs no workspace
};

// Ways whose times differ by no more are as good as each other.
inline constexpr float kAsGood = 1.03f;

// Where both are as good and need the same workspace, the faster one; of equals the last.
template <class Time>
size_t taken_by(std::span<const Measured> ways, Time&& time_of) {
  float least = time_of(ways[0]);
  for (const Measured& each : ways) least = std::min(least, time_of(each));
  size_t best = ways.size();
  for (size_t i = 0; i < ways.size(); ++i) {
    if (time_of(ways[i]) > least * kAsGood) continue;
    const auto worth = [&](size_t way) { return std::pair(ways[way].workspace_bytes, time_of(ways[way])); };
    if (best == ways.size() || worth(i) <= worth(best)) best = i;
  }
  return best;
}

// There is at least one way without a gain to show.
inline size_t taken(std::span<const Measured> ways) {
  constexpr float kNever = std::numeric_limits<float>::infinity();
  const Measured& rival =
      ways[taken_by(ways, [](const Measured& way) { return way.gain > 1 ? kNever : way.time; })];
  const bool on_equal_terms = rival.ours || rival.workspace_bytes > 0;
  return taken_by(ways, [&](const Measured& way) { return on_equal_terms ? way.time : way.time * way.gain; });
}

// ---- the choice

template <class Algorithm>
struct Way {
  std::string word = {};                    // by which it is kept; "": by the driver's own rule
  std::optional<Algorithm> algorithm = {};  // nothing: kernels of ours
  uint64_t workspace_bytes = 0;
  float gain = 1;  // as Measured has it
};

// What a library proposes and then refuses, it cannot. Another failure may pass, and decides nothing.
// enqueue(algorithm) -> Result<bool>: whether the library takes it.
template <class Algorithm, class Enqueue>
Status leave_out_refused(std::vector<Way<Algorithm>>& ways, Enqueue&& enqueue) {
  std::vector<Way<Algorithm>> able;
  for (Way<Algorithm>& each : ways) {
    bool takes = true;
    if (each.algorithm.has_value()) {
      HEDDLE_TRY_ASSIGN(takes, enqueue(*each.algorithm));
    }
    if (takes) able.push_back(std::move(each));
  }
  ways = std::move(able);
  return {};
}

// run(way) enqueues it.
template <class Algorithm, class Run>
Result<std::vector<float>> time_each(const OpenDevice& device, const std::vector<Way<Algorithm>>& ways,
                                     Run&& run) {
  std::vector<std::function<Status()>> runs;
  for (const Way<Algorithm>& each : ways) runs.emplace_back([&run, &each] { return run(each); });
  return times_of(device, runs);
}

template <class Problem, class Algorithm, class Hash>
class ChosenOnce {
 public:
  using Chosen = Way<Algorithm>;
  using Ways = std::vector<Chosen>;

  // `library` names the file. `identity`: GPU and version of the library.
  ChosenOnce(const LibraryTuning& tuning, std::string_view library, std::string identity)
      : store_(tuning.on ? std::make_unique<AlgorithmStore>(tuning, library, std::move(identity)) : nullptr) {
  }

  bool measures() const { return store_ != nullptr; }
  std::string describe(const char* rule) const {  // for people
    return store_ != nullptr ? store_->describe() : text(rule, ": HEDDLE_TUNE is off");
  }

  // What `asked` says of the problem:
  //   name()           of the problem, in the file
  //   ways()           Result<Ways>, the library's in its order, then ours
  //   unmeasured(ways) Result<Chosen>, where nothing is measured
  //   time(ways)       Result<std::vector<float>>, of each; it leaves out what the library refuses after all
  template <class Asked>
  Result<Chosen> choose(const Problem& problem, Asked&& asked) const {
    const auto make = [&]() -> Result<Ref<const Chosen>> {
      const Result<Chosen> made = make_choice(asked);
      renew_exit_handler();  // each kind of kernel may bring static objects
      if (!made.ok()) return made.status();
      return std::make_shared<const Chosen>(*made);
    };
    HEDDLE_TRY_ASSIGN(const Ref<const Chosen> chosen, choices_.get_or_make(problem, make));
    return *chosen;
  }

  // The same, measured with `most`, which is alike.
  //   choose_for(problem)  Result<Chosen>, by choose()
  //   fit(algorithm)       Result<std::optional<Algorithm>>, as `problem` needs it; nothing: it cannot be
  template <class ChooseFor, class Fit>
  Result<Chosen> choose_alike(const Problem& problem, const Problem& most, ChooseFor&& choose_for,
                              Fit&& fit) const {
    if (!measures() || most == problem) return choose_for(problem);
    HEDDLE_TRY_ASSIGN(Chosen chosen, choose_for(most));
    if (!chosen.algorithm.has_value()) return chosen;
    HEDDLE_TRY_ASSIGN(std::optional<Algorithm> fitted, fit(*chosen.algorithm));
    if (!fitted.has_value()) return choose_for(problem);
    chosen.algorithm = std::move(fitted);
    return chosen;
  }

 private:
  // A kept choice counts only if the library proposes it: other bytes mean nothing known.
  static std::optional<Chosen> known(const Ways& ways, const std::string& word) {
    if (word == AlgorithmStore::kOurs) return Chosen{.word = word};
    const auto found = std::ranges::find(ways, word, &Chosen::word);
    return found == ways.end() ? std::nullopt : std::optional(*found);
  }

  template <class Asked>
  Result<Chosen> make_choice(Asked& asked) const {
    HEDDLE_TRY_ASSIGN(Ways ways, asked.ways());
    const bool proposes =
        std::ranges::any_of(ways, [](const auto& way) { return way.algorithm.has_value(); });
    if (!proposes) return Chosen();
    if (!measures()) return asked.unmeasured(std::move(ways));
    const std::string name = asked.name();
    const std::optional<std::string> kept = store_->find(name);
    if (kept.has_value()) {
      if (std::optional<Chosen> choice = known(ways, *kept); choice.has_value()) return *std::move(choice);
    }
    HEDDLE_TRY_ASSIGN(const std::vector<float> times, asked.time(ways));
    std::vector<Measured> measured;
    for (size_t i = 0; i < ways.size(); ++i)
      measured.push_back({times[i], ways[i].workspace_bytes, !ways[i].algorithm.has_value(), ways[i].gain});
    const Chosen chosen = ways.empty() ? Chosen{.word = AlgorithmStore::kOurs} : ways[taken(measured)];
    return known(ways, store_->keep(name, chosen.word, kept.has_value())).value_or(chosen);
  }

  const std::unique_ptr<AlgorithmStore> store_;  // null: nothing is measured
  mutable OnceMap<Problem, Chosen, Hash> choices_;
};

}  // namespace heddle::cuda
