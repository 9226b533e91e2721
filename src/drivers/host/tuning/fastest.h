// fastest.h: which of several ways is the fastest, by running each in turn.
//
//   What       fastest() runs the ways in rounds, each once a round, so that a change of the machine's speed
//              meets all alike, and keeps each way's two shortest times. Once the two agree within kAgree for
//              every way still in question, it chooses; ways of less than kShort, which vary more and cost
//              less, are run kRoundsOfShort times first. A way that is much slower than the best is not run
//              again.
//   Choice     The first way whose shortest time is within kNoise of the shortest of all: the ways come the
//              simplest first, so noise does not decide. A choice other than the simplest is confirmed by two
//              rounds of those that come near.
//   None       Times did not agree within kRounds rounds: the machine was busy with something else, and what
//              was measured says nothing. Or `most` is over, or would be before each way has run once.
//   Errors     Those of `time`. Its `unavailable` means that something came between: none is chosen.
//   Threads    Any; `time` runs on the caller's.
#pragma once

#include <functional>
#include <optional>

#include "base/clock.h"
#include "base/status.h"

namespace heddle::host {

inline constexpr double kNoise = 0.05, kAgree = 0.10;
inline constexpr int kRounds = 12, kRoundsOfShort = 6;
inline constexpr Duration kShort = std::chrono::microseconds(100);

// Runs a way once. Duration::max(): it is out of the question.
using TimeWay = std::function<Result<Duration>(size_t way)>;

Result<std::optional<size_t>> fastest(size_t ways, Duration most, const Clock& clock, const TimeWay& time);

}  // namespace heddle::host
