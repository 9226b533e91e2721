// What holds over whole histories of the policy, and that the checks see a policy for which it does not.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "batch/policy/policy_simulation_fixture.h"

namespace heddle::batch {

namespace {

std::string fault_in(const History& history, const Decide& decide) {
  const Played played = simulate(history, decide);
  if (played.fault) return *played.fault;
  std::vector<int> answers(history.callers.size());
  for (const Answered& answer : played.answers) ++answers[answer.caller];
  for (size_t i = 0; i < answers.size(); ++i) {
    if (answers[i] != history.callers[i].calls) return "a call is not answered exactly once";
  }
  return {};
}

// The smallest history that fails, or an empty string.
std::string search(uint64_t seeds, const Decide& decide, size_t* callers = nullptr) {
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const History history = random_history(seed);
    if (fault_in(history, decide).empty()) continue;
    const History least = shrink(history, [&](const History& h) { return !fault_in(h, decide).empty(); });
    if (callers != nullptr) *callers = least.callers.size();
    return fault_in(least, decide) + ", seed " + std::to_string(seed) + "\n" + to_string(least);
  }
  return {};
}

struct Mutant {
  std::string name;
  Decide decide;
};

Decision asked_with(TimePoint now, std::span<const Waiting> waiting, Running running, const Limits& limits,
                    void (*change)(Running&)) {
  change(running);
  return decide(now, waiting, running, limits);
}

Decision limited_with(TimePoint now, std::span<const Waiting> waiting, const Running& running, Limits limits,
                      void (*change)(Limits&)) {
  change(limits);
  return decide(now, waiting, running, limits);
}

template <class Part, class Change>
Decide answering(Change change) {
  return [change](TimePoint now, std::span<const Waiting> waiting, const Running& running,
                  const Limits& limits) {
    Decision decision = decide(now, waiting, running, limits);
    if (auto* part = std::get_if<Part>(&decision)) change(*part, now, waiting);
    return decision;
  };
}

Decide running_with(void (*change)(Running&)) {
  return [change](TimePoint now, std::span<const Waiting> waiting, const Running& running,
                  const Limits& limits) { return asked_with(now, waiting, running, limits, change); };
}

Decide limited_by(void (*change)(Limits&)) {
  return [change](TimePoint now, std::span<const Waiting> waiting, const Running& running,
                  const Limits& limits) { return limited_with(now, waiting, running, limits, change); };
}

Decide waiting_with(void (*change)(Waiting&)) {
  return [change](TimePoint now, std::span<const Waiting> waiting, const Running& running,
                  const Limits& limits) {
    std::vector<Waiting> changed(waiting.begin(), waiting.end());
    for (Waiting& request : changed) change(request);
    return decide(now, changed, running, limits);
  };
}

std::vector<Mutant> mutants() {
  using Ids = std::span<const Waiting>;
  return {
      {"ignores returning callers", running_with([](Running& r) { r.returning = 0; })},
      {"ignores the lane's share", running_with([](Running& r) { r.active = 0; })},
      {"counts one lane too many", running_with([](Running& r) { ++r.lanes; })},
      {"believes that nothing runs", running_with([](Running& r) { r.busy = 0; })},
      {"ignores max_rows", limited_by([](Limits& l) { l.max_rows = 1000; })},
      {"ignores max_cost", limited_by([](Limits& l) { l.max_cost = 0; })},
      {"sums a padded cost", limited_by([](Limits& l) { l.cost_kind = CostKind::sum; })},
      {"ignores max_wait", limited_by([](Limits& l) { l.max_wait = Duration::max(); })},
      {"ages at half the speed", limited_by([](Limits& l) { l.aging *= 2; })},
      {"ignores preferred sizes", limited_by([](Limits& l) { l.preferred_rows.clear(); })},
      {"ignores deadlines", waiting_with([](Waiting& w) { w.deadline = TimePoint::max(); })},
      {"ignores priorities", waiting_with([](Waiting& w) { w.priority = 0; })},
      {"ignores groups", waiting_with([](Waiting& w) { w.group = 0; })},
      {"loses the last", answering<Take>([](Take& take, TimePoint, Ids) { take.ids.pop_back(); })},
      {"answers twice", answering<Take>([](Take& take, TimePoint, Ids) { take.ids.push_back(take.ids[0]); })},
      {"turns the batch round",
       answering<Take>([](Take& take, TimePoint, Ids) { std::reverse(take.ids.begin(), take.ids.end()); })},
      {"expires every request", answering<Expire>([](Expire& expire, TimePoint, Ids waiting) {
         expire.ids.clear();
         for (const Waiting& request : waiting) expire.ids.push_back(request.id);
       })},
      {"waits until now", answering<Wait>([](Wait& wait, TimePoint now, Ids) { wait.until = now; })},
      {"waits for ever", answering<Wait>([](Wait& wait, TimePoint, Ids) { wait.until = TimePoint::max(); })},
      {"waits too long", answering<Wait>([](Wait& wait, TimePoint, Ids) {
         if (wait.until != TimePoint::max()) wait.until += std::chrono::milliseconds(1);
       })},
  };
}

}  // namespace

TEST_CASE("every decision of random histories is right, and every call is answered once") {
  CHECK(search(800, decide) == "");
}

TEST_CASE("a policy with a fault is found out, and by a small history") {
  for (const Mutant& mutant : mutants()) {
    CAPTURE(mutant.name);
    size_t callers = 0;
    const std::string found = search(400, mutant.decide, &callers);
    CAPTURE(found);
    CHECK(found != "");
    CHECK(callers <= 5);
  }
}

// One lane, and more work of high priority than it can do. One caller asks for less.
TEST_CASE("a low priority is served after its steps of aging, and only with aging") {
  History history;
  history.limits.max_rows = 1;
  for (int i = 0; i < 4; ++i) history.callers.push_back({.calls = 500, .priority = 3});
  history.callers.push_back({.first = microseconds(50), .calls = 1});
  for (const bool is_same_group : {true, false}) {
    history.callers.back().group = is_same_group ? 0 : 1;
    for (const Duration aging : {Duration(microseconds(1000)), Duration::zero()}) {
      CAPTURE(aging.count());
      history.limits.aging = aging;
      const Played played = simulate(history, decide);
      REQUIRE(played.fault.value_or("none") == "none");
      Duration low{};
      for (const Answered& answer : played.answers) low = answer.caller == 4 ? answer.waited : low;
      if (aging == Duration::zero()) {
        CHECK(low > 2000 * history.run - history.run * 5);
      } else {
        CHECK(low > 2 * aging);
        CHECK(low <= 3 * aging + 5 * history.run);
      }
    }
  }
}

// Five callers fill batches of four: one is always expected back, and the next batch is always full in
// time. One caller of another group would wait for as long as they call.
TEST_CASE("a group that waits for returning callers is not starved by one that they fill") {
  History history;
  history.lanes = 1;
  history.limits.max_rows = 4;
  for (int i = 0; i < 5; ++i) history.callers.push_back({.calls = 500, .think = microseconds(i)});
  history.callers.push_back({.first = microseconds(150), .calls = 1, .group = 1});
  for (const Duration aging : {Duration(microseconds(1000)), Duration::zero()}) {
    history.limits.aging = aging;
    const Played played = simulate(history, decide);
    REQUIRE(played.fault.value_or("none") == "none");
    Duration other{};
    for (const Answered& answer : played.answers) other = answer.caller == 5 ? answer.waited : other;
    if (aging == Duration::zero()) {
      CHECK(other > 400 * history.run);
    } else {
      CHECK(other > aging);
      CHECK(other <= aging + 3 * history.run);
    }
  }
}

// Blocking callers of one row on two lanes, as measured on a machine with two cores: a run takes 180 us and
// 20 us a row, a caller is back 2 to 22 us after its answer.
TEST_CASE("64 callers keep two lanes in large batches, where the greedy rule falls to batches of one") {
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    CAPTURE(seed);
    History history;
    history.lanes = 2;
    history.run = microseconds(180);
    history.run_per_row = microseconds(20);
    Dice dice(seed);
    for (int i = 0; i < 64; ++i) {
      const Duration think = microseconds(2) + Duration(dice.upto(20'000));
      history.callers.push_back({.first = dice.micros(50), .calls = 300, .think = think});
    }
    history.knows_callers = false;
    const Played greedy = simulate(history, decide, Checked::no);
    history.knows_callers = true;
    const Played real = simulate(history, decide, Checked::no);
    CHECK(greedy.share_of(1) > 0.5);
    CHECK(real.mean_rows() >= 16);
    CHECK(real.share_of(1) <= 0.02);
    CHECK(real.end < greedy.end * 4 / 5);
    CHECK(real.answers.size() == 64 * 300);
    CHECK(greedy.answers.size() == 64 * 300);
  }
}

}  // namespace heddle::batch
