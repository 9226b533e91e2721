#include "base/strategy.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/condition.h"
#include "base/schedules_fixture.h"
#include "base/sync.h"

namespace heddle {
namespace {

using Taken = std::vector<size_t>;

Taken three_turns(Strategy& choices, size_t free) {
  const std::vector<uint32_t> threads{1, 2, 3};
  Taken taken;
  for (int i = 0; i < 3; ++i) taken.push_back(choices.next({threads, free, threads.size()}));
  return taken;
}

// Every run of three turns, each once.
std::vector<Taken> all_of(SystematicChoices& choices, size_t free) {
  std::vector<Taken> out;
  do {
    choices.begin();
    out.push_back(three_turns(choices, free));
    CHECK_FALSE(choices.diverged());
  } while (choices.advance() && out.size() < 1000);
  CHECK(std::set<Taken>(out.begin(), out.end()).size() == out.size());
  return out;
}

TEST_CASE("systematic choices: each schedule with so many preemptions comes once, in order") {
  // Three turns of three threads, the first of which goes on for nothing.
  const size_t counts[] = {1, 1 + 3 * 2, 1 + 3 * 2 + 3 * 4, 27, 27};
  for (size_t bound = 0; bound < 5; ++bound) {
    CAPTURE(bound);
    SystematicChoices choices({bound, 0});
    const std::vector<Taken> found = all_of(choices, 1);
    CHECK(found.size() == counts[bound]);
    CHECK(std::is_sorted(found.begin(), found.end()));
    for (const Taken& taken : found) {
      const auto preemptions = 3 - std::count(taken.begin(), taken.end(), size_t{0});
      CHECK(preemptions <= static_cast<std::ptrdiff_t>(bound));
    }
  }
  SystematicChoices free_ones({0, 0});
  CHECK(all_of(free_ones, 2).size() == 8);
}

TEST_CASE(
    "systematic choices: so many loads find an older value, and where there is one value there is no "
    "choice") {
  SystematicChoices choices({0, 1});
  std::set<Taken> found;
  size_t runs = 0;
  do {
    choices.begin();
    Taken taken;
    for (int i = 0; i < 3; ++i) {
      taken.push_back(choices.stale(3));
      CHECK(choices.stale(1) == 0);
      CHECK(choices.among(1) == 0);
    }
    found.insert(taken);
  } while (choices.advance() && ++runs < 1000);
  CHECK(found.size() == 7);
  CHECK(runs == 6);
}

TEST_CASE("systematic choices: a schedule's words repeat it") {
  SystematicChoices choices({2, 0});
  do {
    choices.begin();
    const Taken taken = three_turns(choices, 1);
    const std::string words = choices.describe();
    CAPTURE(words);
    SystematicChoices again = SystematicChoices::replay(words);
    again.begin();
    CHECK(three_turns(again, 1) == taken);
    CHECK_FALSE(again.diverged());
    CHECK(again.describe() == words);
  } while (choices.advance());
}

TEST_CASE("systematic choices: words are of the choices that the run came to, and one option is no choice") {
  SystematicChoices choices = SystematicChoices::replay("3.0:0+1,1+2,");
  choices.begin();
  CHECK(choices.describe() == "3.0:");
  CHECK(choices.among(1) == 0);
  CHECK(choices.among(3) == 1);
  CHECK(choices.describe() == "3.0:0+1,");
  CHECK(choices.among(1) == 0);
  CHECK(choices.among(3) == 0);
  CHECK(choices.among(3) == 2);
  CHECK(choices.describe() == "3.0:0+1,1+2,");
}

TEST_CASE("systematic choices: words that are none make no choice, and what follows an error is left out") {
  struct Case {
    const char* words;
    Taken taken;
    const char* described;
  };
  for (const Case& each : {Case{"", {0, 0, 0}, "0.0:"},
                           {"x", {0, 0, 0}, "0.0:"},
                           {"3", {0, 0, 0}, "0.0:"},
                           {"3,1:0+1,", {0, 0, 0}, "0.0:"},
                           {"3.", {0, 0, 0}, "0.0:"},
                           {"3.x:0+1,", {0, 0, 0}, "0.0:"},
                           {"3.1", {0, 0, 0}, "0.0:"},
                           {"3.1;0+1,", {0, 0, 0}, "0.0:"},
                           {"3.1:", {0, 0, 0}, "3.1:"},
                           {"3.1:1+1", {0, 0, 0}, "3.1:"},
                           {"3.1:1-1,", {0, 0, 0}, "3.1:"},
                           {"3.1:1+1;", {0, 0, 0}, "3.1:"},
                           {"3.1:1+1,", {0, 1, 0}, "3.1:1+1,"},
                           {"3.1:0+1,1+2,", {1, 0, 2}, "3.1:0+1,1+2,"},
                           {"3.1:0+1,1+2", {1, 0, 0}, "3.1:0+1,"},
                           {"3.1:0+1,x", {1, 0, 0}, "3.1:0+1,"}}) {
    CAPTURE(each.words);
    SystematicChoices choices = SystematicChoices::replay(each.words);
    choices.begin();
    CHECK(three_turns(choices, 1) == each.taken);
    CHECK(choices.describe() == each.described);
  }
}

TEST_CASE("systematic choices: a run with other choices than its schedule's has diverged") {
  SystematicChoices fewer = SystematicChoices::replay("3.0:3+1,");  // the fourth choice of three
  fewer.begin();
  three_turns(fewer, 1);
  CHECK(fewer.diverged());

  SystematicChoices other({3, 0});
  other.begin();
  three_turns(other, 1);
  REQUIRE(other.advance());
  other.begin();
  CHECK(other.among(2) == 0);  // there were three options
  CHECK(other.diverged());
  other.begin();
  CHECK(three_turns(other, 1) == Taken{0, 0, 1});
  CHECK_FALSE(other.diverged());

  SystematicChoices far = SystematicChoices::replay("3.0:0+5,");
  far.begin();
  CHECK(far.among(3) == 2);  // the last there is
}

TEST_CASE("systematic choices: a simulation of more than 64 threads is refused") {
  for (const int threads : {63, 64}) {  // and the one that starts them
    CAPTURE(threads);
    SystematicChoices choices({0, 0});
    const SimulationReport report =
        test::run_schedule({"many", threads, 0}, choices, [](Simulation& sim, int count) {
          Atomic<int> there{0};
          test::at_once(sim, count, [&](int) { there.add_relaxed(1); });
          sim.expect(there.load_relaxed() == count, "all were there");
        });
    CHECK((report.failure.find("at most 64 threads") != std::string::npos) == (threads == 64));
    CHECK(report.failure.empty() == (threads == 63));
  }
}

TEST_CASE("systematic choices: who is woken before the threads are let go is no choice of the schedule") {
  SystematicChoices choices({0, 0});
  int runs = 0;
  do {
    choices.begin();
    const SimulationReport report =
        test::run_schedule({"woken", 1, 0}, choices, [](Simulation& sim, int count) {
          Guarded<int, Rank::kPool> woken(0), there(0);
          std::vector<Thread> sleepers;
          for (int i = 0; i < 2; ++i) {
            sleepers.emplace_back("sleeper", [&] {
              ++*there.lock();
              there.notify_all();
              auto held = woken.lock();
              held.wait([&] { return *held > 0; });
              --*held;
            });
          }
          {
            auto held = there.lock();
            held.wait([&] { return *held == 2; });
          }
          sim.pause(std::chrono::milliseconds(1));
          for (int i = 0; i < 2; ++i) {
            ++*woken.lock();
            woken.notify_one();
          }
          sleepers.clear();
          test::at_once(sim, count, [](int) {});
        });
    CHECK_MESSAGE(report.ok(), report.failure);
    ++runs;
  } while (choices.advance() && runs < 10);
  CHECK(runs == 1);
}

// In which order these threads go, each for one turn.
std::vector<uint32_t> order_of(RandomPriorities& choices, std::vector<uint32_t> threads) {
  std::vector<uint32_t> out;
  while (!threads.empty()) {
    const size_t taken = choices.next({threads, 1, threads.size()});
    out.push_back(threads[taken]);
    threads.erase(threads.begin() + static_cast<std::ptrdiff_t>(taken));
  }
  return out;
}

TEST_CASE(
    "random priorities: at each change the thread that runs goes behind all, before those of later changes") {
  constexpr size_t kNever = size_t{1} << 40;
  std::set<std::vector<uint32_t>> orders;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    RandomPriorities never(seed, kNever, 3), at_once(seed, 1, 3);
    const std::vector<uint32_t> order = order_of(never, {1, 2, 3});
    orders.insert(order);
    CHECK(order_of(at_once, {1, 2, 3}) == std::vector<uint32_t>{order[2], order[0], order[1]});
    RandomPriorities once(seed, 1, 2), none(seed, 1, 1);
    const std::vector<uint32_t> first = order_of(once, {1, 2, 3});
    RandomPriorities later(seed, kNever, 2);
    const std::vector<uint32_t> unchanged = order_of(later, {1, 2, 3});
    CHECK(first == std::vector<uint32_t>{unchanged[1], unchanged[2], unchanged[0]});
    CHECK(order_of(none, {1, 2, 3}).size() == 3);
    CHECK(none.steps() == 3);
    CHECK(none.threads() == 3);
  }
  CHECK(orders.size() == 6);
}

// Takes the second option first, from then on the first, and keeps what was offered.
class Offers final : public Strategy {
 public:
  size_t next(const Turn& turn) override {
    offered.insert({turn.threads.begin(), turn.threads.end()});
    return turn.threads.size() > 1 && !std::exchange(switched_, true) ? 1 : 0;
  }
  size_t among(size_t) override { return 0; }
  size_t stale(size_t) override { return 0; }
  std::string describe() const override { return "the second, then the first"; }
  bool time_stands() const override { return true; }

  std::set<std::vector<uint32_t>> offered;

 private:
  bool switched_ = false;
};

TEST_CASE("a strategy is offered the running thread, then those behind it by number, then those before it") {
  Offers offers;
  SimulationOptions options;
  options.strategy = &offers;
  const auto body = [](Simulation& sim) {
    Atomic<int> word{0};
    test::at_once(sim, 3, [&](int) {
      word.add_relaxed(1);
      word.add_relaxed(1);
    });
  };
  const SimulationReport report = simulate(1, body, options);
  REQUIRE_MESSAGE(report.ok(), report.failure);
  CHECK(offers.offered.count({2, 3, 4}) == 1);
  CHECK(offers.offered.count({3, 4, 2}) == 1);
}

TEST_CASE("a pause ends at its time, also where time stands but for jumps") {
  for (const int64_t ns : {int64_t{0}, int64_t{1}, int64_t{1'000'000}}) {
    Offers offers;
    SimulationOptions options;
    options.strategy = &offers;
    options.steps_max = 1000;
    const SimulationReport report = simulate(
        1,
        [&](Simulation& sim) {
          test::at_once(sim, 1, [&](int) {
            const TimePoint before = Clock::real().now();
            sim.pause(Duration(ns));
            sim.expect(Clock::real().now() - before == Duration(ns), "no longer, and no shorter");
          });
        },
        options);
    CHECK_MESSAGE(report.ok(), report.failure);
  }
}

TEST_CASE("a simulation may take as many steps as it is told, and not one more") {
  const auto run = [](uint64_t most) {
    SystematicChoices first({});
    SimulationOptions options;
    options.strategy = &first;  // so that the steps are counted at each
    options.steps_max = most;
    return simulate(1, [](Simulation& sim) { test::at_once(sim, 2, [](int) { give_way(); }); }, options);
  };
  const uint64_t steps = run(1000).steps;
  CHECK(steps > 2);
  const SimulationReport enough = run(steps), fewer = run(steps - 1);
  CHECK_MESSAGE(enough.ok(), enough.failure);
  CHECK(fewer.failure.find("more than " + std::to_string(steps - 1) + " steps") != std::string::npos);
}

// Takes the running thread, and of equals always the same.
class OneOfEquals final : public Strategy {
 public:
  explicit OneOfEquals(size_t which) : which_(which) {}
  size_t next(const Turn&) override { return 0; }
  size_t among(size_t options) override { return std::min(which_, options - 1); }
  size_t stale(size_t) override { return 0; }
  std::string describe() const override { return "the same of equals"; }
  bool time_stands() const override { return true; }

 private:
  const size_t which_;
};

TEST_CASE("of two that sleep a strategy's first choice wakes the one before, and its second the one behind") {
  for (const size_t which : {0, 1}) {
    OneOfEquals choices(which);
    SimulationOptions options;
    options.strategy = &choices;
    std::vector<int> woken;
    const auto body = [&](Simulation& sim) {
      Mutex mutex;
      Condition changed;
      int asleep = 0;
      test::at_once(sim, 3, [&](int i) {
        if (i == 2) {
          while (asleep != 2) give_way();
          changed.notify_one();
          while (woken.empty()) give_way();
          return changed.notify_one();
        }
        std::unique_lock held(mutex);
        ++asleep;
        changed.wait(held, Deadline::never());
        woken.push_back(i);
      });
    };
    const SimulationReport report = simulate(1, body, options);
    REQUIRE_MESSAGE(report.ok(), report.failure);
    CHECK(woken == (which == 0 ? std::vector{0, 1} : std::vector{1, 0}));
  }
}

TEST_CASE("random priorities: who sleeps does not go, whatever its priority") {
  const std::vector<uint32_t> threads{1, 2, 3};
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    RandomPriorities choices(seed, 100, 2);
    CHECK(choices.next({threads, 1, 1}) == 0);
    CHECK(choices.next({threads, 1, 0}) == 0);  // nobody can: the first sleeper's deadline passes
    CHECK(choices.threads() == 1);
    CHECK(choices.steps() == 2);
  }
}

}  // namespace
}  // namespace heddle
