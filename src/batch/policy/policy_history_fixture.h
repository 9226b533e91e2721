// policy_history_fixture.h: which caller calls when, how long batches run, and a smaller history that fails
// alike.
//
//   What       A History is a value: callers that each call, wait for the answer, think and call again; a
//              device with lanes; the limits. random_history() makes one from a seed. shrink() drops callers
//              and halves numbers for as long as a test still fails. to_string() prints what is left.
//   Threads    Pure.
#pragma once

#include <algorithm>
#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "batch/policy/batch_policy.h"

namespace heddle::batch {

using std::chrono::microseconds;

struct Caller {
  Duration first{};  // when it calls for the first time
  int calls = 1;
  Duration think{};  // from an answer to the next call
  uint64_t group = 0;
  int priority = 0;
  int64_t rows = 1;
  int64_t cost = 0;
  Duration patience = Duration::max();  // from a call to its deadline
};

struct History {
  std::vector<Caller> callers;
  int lanes = 1;
  Duration run = microseconds(100);  // of a batch, and
  Duration run_per_row{};
  bool knows_callers = true;  // Running::active and returning are given
  Duration late{};            // how late a timer fires
  Limits limits;
};

class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  int64_t upto(int64_t most) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(most + 1)); }
  bool one_in(int64_t n) { return upto(n - 1) == 0; }
  Duration micros(int64_t most) { return microseconds(upto(most)); }

 private:
  std::mt19937_64 engine_;
};

inline History random_history(uint64_t seed) {
  Dice dice(seed);
  History history;
  history.lanes = static_cast<int>(1 + dice.upto(2));
  history.run = microseconds(20 + dice.upto(200));
  history.run_per_row = dice.micros(20);
  history.knows_callers = !dice.one_in(4);
  history.late = dice.one_in(2) ? Duration::zero() : dice.micros(4);
  Limits& limits = history.limits;
  limits.max_rows = 1 + dice.upto(11);
  if (dice.one_in(3)) limits.max_cost = 1 + dice.upto(60);
  if (dice.one_in(2)) limits.cost_kind = CostKind::padded;
  if (dice.one_in(2)) limits.max_wait = dice.micros(300);
  limits.aging = dice.one_in(4) ? Duration::zero() : microseconds(1 + dice.upto(400));
  if (dice.one_in(3)) limits.preferred_rows = {2, 5, 8};
  const int64_t groups = dice.upto(2);
  const int64_t priorities = dice.upto(2);
  const int64_t most_rows = dice.one_in(2) ? 0 : 5;
  const int64_t burst = dice.one_in(2) ? 50 : 2000;
  const int64_t callers = 1 + dice.upto(14);
  for (int64_t i = 0; i < callers; ++i) {
    Caller caller;
    caller.first = dice.micros(burst);
    caller.calls = static_cast<int>(1 + dice.upto(4));
    caller.think = dice.micros(dice.one_in(2) ? 10 : 500);
    caller.group = static_cast<uint64_t>(dice.upto(groups));
    caller.priority = static_cast<int>(dice.upto(priorities));
    caller.rows = 1 + dice.upto(most_rows);
    caller.cost = dice.upto(20);
    if (dice.one_in(3)) caller.patience = microseconds(40 + dice.upto(600));
    history.callers.push_back(caller);
  }
  return history;
}

inline std::string to_string(const History& history) {
  const auto micros = [](Duration d) {
    if (d == Duration::max()) return std::string("never");
    return std::to_string(d.count()) + "ns";
  };
  std::ostringstream out;
  const Limits& limits = history.limits;
  out << history.lanes << " lanes, run " << micros(history.run) << " + " << micros(history.run_per_row)
      << " a row, callers " << (history.knows_callers ? "known" : "unknown") << ", timers late by "
      << micros(history.late) << "\nmax_rows " << limits.max_rows << ", max_cost " << limits.max_cost
      << (limits.cost_kind == CostKind::padded ? " padded" : " sum") << ", max_wait "
      << micros(limits.max_wait) << ", aging " << micros(limits.aging) << ", preferred";
  for (const int64_t size : limits.preferred_rows) out << ' ' << size;
  for (const Caller& c : history.callers) {
    out << "\ncaller at " << micros(c.first) << ": " << c.calls << " calls, thinks " << micros(c.think)
        << ", group " << c.group << ", priority " << c.priority << ", rows " << c.rows << ", cost " << c.cost
        << ", deadline after " << micros(c.patience);
  }
  return out.str();
}

// The histories that are one step smaller, the larger steps first.
inline std::vector<History> smaller(const History& history) {
  std::vector<History> out;
  const auto without = [&](size_t from, size_t count) {
    History less = history;
    const auto begin = less.callers.begin() + static_cast<ptrdiff_t>(from);
    less.callers.erase(begin, begin + static_cast<ptrdiff_t>(count));
    out.push_back(less);
  };
  const auto changed = [&](auto change) {
    History less = history;
    change(less);
    if (to_string(less) != to_string(history)) out.push_back(less);
  };
  const auto halved = [](Duration& d) {
    if (d != Duration::max()) d /= 2;
  };
  const size_t count = history.callers.size();
  if (count > 3) without(0, count / 2);
  if (count > 3) without(count / 2, count - count / 2);
  for (size_t i = 0; i < count; ++i) without(i, 1);
  changed([](History& h) { h.lanes = 1; });
  changed([](History& h) { h.late = {}; });
  changed([](History& h) { h.knows_callers = false; });
  changed([](History& h) { h.limits.preferred_rows.clear(); });
  changed([](History& h) { h.limits.max_wait = Duration::max(); });
  changed([](History& h) { h.limits.max_cost = 0; });
  changed([&](History& h) { halved(h.limits.max_wait); });
  changed([&](History& h) { halved(h.limits.aging); });
  changed([&](History& h) { halved(h.run); });
  changed([&](History& h) { halved(h.run_per_row); });
  for (size_t i = 0; i < count; ++i) {
    changed([&](History& h) { h.callers[i].calls = 1; });
    changed([&](History& h) { h.callers[i].calls -= h.callers[i].calls > 1 ? 1 : 0; });
    changed([&](History& h) { h.callers[i].patience = Duration::max(); });
    changed([&](History& h) { h.callers[i].group = 0; });
    changed([&](History& h) { h.callers[i].priority = 0; });
    changed([&](History& h) { h.callers[i].rows = 1; });
    changed([&](History& h) { h.callers[i].cost = 0; });
    changed([&](History& h) { h.callers[i].first = {}; });
    changed([&](History& h) { halved(h.callers[i].first); });
    changed([&](History& h) { halved(h.callers[i].think); });
    changed([&](History& h) { halved(h.callers[i].patience); });
  }
  return out;
}

inline History shrink(History history, const std::function<bool(const History&)>& fails) {
  for (bool found = true; found;) {
    found = false;
    for (const History& less : smaller(history)) {
      if (!fails(less)) continue;
      history = less;
      found = true;
      break;
    }
  }
  return history;
}

}  // namespace heddle::batch
