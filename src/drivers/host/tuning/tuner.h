// tuner.h: decides how products are cut, by measuring each shape once on this processor.
//
//   What       decide() gives the decision about a key: one that is kept, else by measuring, else none, and
//              the default rule holds. Decisions are kept in a TuningFile, if there is a folder for it.
//   When       A shape is measured when it is compiled, so that a compiled program never changes its way. All
//              measuring together takes at most kShare of the time since the tuner was made, and a shape at
//              most kMostOfShape: a process that has just started measures next to nothing, one that lives
//              measures every new shape. With `all` a shape may take kMostOfShapeThen, at once: once for a
//              machine, or for its image.
//   Invariant  One shape is measured at a time; who comes meanwhile takes the default. What was measured
//              while something else used the processor is neither taken nor kept (fastest.h).
//   Errors     Those of `time` but for `unavailable` (fastest.h). What the file cannot do is told to `warn`,
//              once for reading and once for writing: decisions then live as long as the tuner.
//   Threads    Any.
//   Blocks     While it measures, and on the file.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/sync.h"
#include "drivers/host/tuning/fastest.h"
#include "drivers/host/tuning/tuning_file.h"

namespace heddle::host {

class Tuner {
 public:
  struct Options {
    bool all = false;
    std::string folder = {};    // "": decisions are not kept
    std::string identity = {};  // tuning_identity()
    std::function<void(const std::string&)> warn = [](const std::string&) {};
    const Clock* clock = &Clock::real();
  };
  static constexpr double kShare = 0.05;
  static constexpr Duration kMostOfShape = std::chrono::milliseconds(20),
                            kMostOfShapeThen = std::chrono::seconds(1);
  static constexpr Duration kLeast = std::chrono::milliseconds(1);  // less time is not worth a beginning

  explicit Tuner(Options options);
  ~Tuner();
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  // `ways`: what may be chosen, the simplest first. A kept decision that is none of them does not count.
  Result<std::optional<Way>> decide(const TuningKey& key, const std::vector<Way>& ways, const TimeWay& time);
  std::optional<Way> decided(const TuningKey& key, const std::vector<Way>& ways) const;
  const Clock& clock() const { return *options_.clock; }
  std::string where() const { return file_ ? file_->path() : ""; }  // they are kept; "": nowhere

 private:
  struct State {
    Decisions decisions;
    std::map<TuningKey, Duration> given_up;  // after so long
    Duration spent = Duration(0);
  };

  Duration time_for(const TuningKey& key) const;  // 0: not now
  void keep();

  const Options options_;
  const std::optional<TuningFile> file_;
  const TimePoint begin_;
  Guarded<State, Rank::kCache> state_;
  Atomic<bool> measuring_{false};  // its setter measures, and owns unsaved_ and unwritable_
  bool unsaved_ = false;
  bool unwritable_ = false;
};

}  // namespace heddle::host
