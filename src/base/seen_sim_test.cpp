// What is left out of an exploration: nothing that ends otherwise.
#include "base/seen.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/condition.h"
#include "base/schedules_fixture.h"
#include "base/sync.h"

namespace heddle {
namespace {

using test::at_once;
using test::Scenario;

TEST_CASE("seen states: an option is left out where it was taken with as many preemptions left") {
  SeenStates seen;
  const SeenStates::Option first[] = {{1, 2}, {2, 1}};
  CHECK(seen.met(7, first) == 0);
  CHECK(seen.met(7, first) == 3);
  const SeenStates::Option more[] = {{1, 3}, {2, 1}};
  CHECK(seen.met(7, more) == 2);
  const SeenStates::Option fewer[] = {{1, 0}, {3, 0}};
  CHECK(seen.met(7, fewer) == 1);
  CHECK(seen.met(8, first) == 0);
  CHECK(seen.size() == 5);
}

TEST_CASE("seen states: what goes on from one state by first options has to come to one end") {
  SeenStates seen;
  seen.take(7, 1);
  CHECK(seen.end(100));
  seen.take(7, 1);
  seen.take(9, 1);
  CHECK(seen.end(100));
  seen.take(9, 1);
  seen.forget_way();  // it took another option later
  seen.take(7, 2);
  CHECK(seen.end(200));
  seen.take(9, 1);
  CHECK_FALSE(seen.end(200));
}

TEST_CASE(
    "pasts: who finds another write, or writes over another one, has another past; who reads does not") {
  SharedWords shared;
  const int x = 0, y = 0;
  const auto run = [&](const std::vector<std::pair<uint32_t, std::string>>& steps) {
    Pasts pasts(shared);
    pasts.start(1, 2);
    pasts.start(1, 3);
    for (const auto& [thread, step] : steps) {
      pasts.run(thread);
      const void* const word = step[1] == 'x' ? &x : &y;
      if (step[0] == 'r') pasts.load(word, 0, std::memory_order_seq_cst);
      if (step[0] == 'w') pasts.store(word, 0, 0, std::memory_order_seq_cst);
      if (step[0] == 't') pasts.tell(5);
      // A comparison that finds what it expects, and one that does not.
      if (step[0] == 'c') pasts.compare(word, 0, {.expected = 0, .desired = 0, .success = {}, .failure = {}});
      if (step[0] == 'f') pasts.compare(word, 0, {.expected = 1, .desired = 0, .success = {}, .failure = {}});
    }
    return pasts.all();
  };
  CHECK(run({{2, "wx"}, {3, "wy"}}) == run({{3, "wy"}, {2, "wx"}}));
  CHECK(run({{2, "rx"}, {3, "rx"}}) == run({{3, "rx"}, {2, "rx"}}));
  CHECK(run({{2, "wx"}, {3, "rx"}}) != run({{3, "rx"}, {2, "wx"}}));
  CHECK(run({{2, "wx"}, {3, "wx"}}) != run({{3, "wx"}, {2, "wx"}}));
  CHECK(run({{2, "wx"}, {3, "rx"}, {2, "wy"}}) == run({{2, "wx"}, {2, "wy"}, {3, "rx"}}));
  CHECK(run({{2, "t"}}) != run({}));
  CHECK(run({{2, "rx"}}) != run({{3, "rx"}}));
  CHECK(run({{2, "cx"}, {3, "rx"}}) != run({{3, "rx"}, {2, "cx"}}));
  CHECK(run({{2, "fx"}, {3, "rx"}}) == run({{3, "rx"}, {2, "fx"}}));
}

TEST_CASE("shared words: those that two threads use and one writes, while they run beside each other") {
  SharedWords shared;
  Pasts pasts(shared);
  pasts.start(1, 2);
  pasts.start(1, 3);
  int words[5] = {};
  const auto use = [&](uint32_t thread, int word, bool writes) {
    pasts.run(thread);
    if (writes) return pasts.store(&words[word], 0, 0, std::memory_order_relaxed);
    pasts.load(&words[word], 0, std::memory_order_relaxed);
  };
  pasts.run(1);
  for (int& word : words) pasts.make(&word);
  use(1, 0, true);  // before they meet
  pasts.meet(true);
  use(2, 0, false);
  use(3, 0, false);
  use(2, 1, true);
  use(2, 1, false);
  use(2, 2, true);
  use(3, 2, false);
  use(2, 3, false);
  use(3, 3, true);
  pasts.run(3);
  pasts.look(&words[4]);
  pasts.run(2);
  pasts.wake(&words[4]);
  CHECK_FALSE(pasts.is_shared(&words[2]));  // not in this exploration
  CHECK(shared.grow());
  CHECK_FALSE(shared.grow());
  const bool expected[] = {false, false, true, true, true};
  for (int i = 0; i < 5; ++i) {
    CAPTURE(i);
    CHECK(pasts.is_shared(&words[i]) == expected[i]);
  }
  pasts.run(2);
  pasts.make(&words[2]);  // another one, at the same address
  CHECK_FALSE(pasts.is_shared(&words[2]));
}

// The outcomes of all schedules of a program, as words.
struct Program {
  std::string name;
  int threads;
  std::function<std::string(Simulation&, int threads)> run;
  size_t most = 3;  // preemptions
};

std::string condition_with_deadline(Simulation& sim, int threads) {
  Guarded<int, Rank::kPool> coins(0);
  std::vector<std::string> got(static_cast<size_t>(threads));
  at_once(sim, threads, [&](int i) {
    std::string& mine = got[static_cast<size_t>(i)];
    if (i == 0) {
      ++*coins.lock();
      coins.notify_one();
      mine = "r";
      return;
    }
    auto held = coins.lock();
    const bool found = held.wait_until(Deadline::in(std::chrono::milliseconds(i)), [&] { return *held > 0; });
    if (found) --*held;
    mine = found ? "f" : "l";
    mine += std::to_string(Clock::real().now().time_since_epoch() / std::chrono::milliseconds(1) % 10);
  });
  std::string out;
  for (const std::string& each : got) out += each + " ";
  return out;
}

// Which of two sleepers was woken no word says. The last thread runs before that one does, or after.
std::string one_is_woken(Simulation& sim, int threads) {
  Guarded<int, Rank::kPool> coins(0);
  Atomic<int> rung{0}, seen{0};
  std::string got[4];
  at_once(sim, threads, [&](int i) {
    if (i == 0) {
      ++*coins.lock();
      rung.store_release(1);
      return coins.notify_one();
    }
    if (i == 3) return seen.store_release(1 + rung.load_acquire());
    got[i] = rung.load_acquire() == 1 ? "after " : "before ";
    auto held = coins.lock();
    int looks = 0;
    const bool found =
        held.wait_until(Deadline::in(std::chrono::milliseconds(1)), [&] { return ++looks > 0 && *held > 0; });
    if (found) --*held;
    got[i] += (found ? "found" : "late") + std::to_string(looks) + std::to_string(seen.load_acquire());
  });
  return got[1] + " " + got[2];
}

// Who gives way to a thread that is not yet asleep finds the same time; beside one that sleeps, time passes.
std::string give_way_beside_a_sleeper(Simulation& sim, int threads) {
  const TimePoint begin = Clock::real().now();
  Atomic<int> begun{0};
  std::string got;
  at_once(sim, threads, [&](int i) {
    if (i == 0) {
      Mutex mutex;
      Condition never;
      std::unique_lock held(mutex);
      begun.store_release(1);
      return never.wait(held, Deadline::at(begin + std::chrono::milliseconds(1)));
    }
    const TimePoint before = Clock::real().now();
    got = begun.load_acquire() == 1 ? "begun " : "not begun ";
    give_way();
    got += Clock::real().now() == before ? "at once" : "later";
  });
  return got;
}

std::vector<Program> programs() {
  return {
      {"store_buffer", 2,
       [](Simulation& sim, int threads) {
         Atomic<int> words[2];
         int seen[2] = {};
         at_once(sim, threads, [&](int i) {
           words[i].store_seq_cst(1);
           seen[i] = words[1 - i].load_seq_cst();
         });
         return std::to_string(seen[0]) + std::to_string(seen[1]);
       }},
      {"check_then_act", 3,
       [](Simulation& sim, int threads) {
         Atomic<int> free{2}, takers{0}, own[3];
         at_once(sim, threads, [&](int i) {
           own[i].add_relaxed(1);
           const int left = free.load_acquire();
           own[i].add_relaxed(1);
           if (left == 0) return;
           free.store_release(left - 1);
           takers.add_relaxed(1);
         });
         return std::to_string(free.newest()) + " " + std::to_string(takers.newest());
       }},
      {"who_came_when", 3,
       [](Simulation& sim, int threads) {
         Atomic<int> last{-1}, own[3];
         std::string order;
         Mutex mutex;
         at_once(sim, threads, [&](int i) {
           own[i].add_relaxed(1);
           const int before = last.exchange_acq_rel(i);
           const std::lock_guard held(mutex);
           own[i].add_relaxed(1);
           order += std::to_string(i) + std::to_string(before) + " ";
         });
         return order;
       }},
  };
}

std::vector<Program> programs_that_wait() {
  return {
      // Whether the lock was seen taken, inside which nothing is shared.
      {"try_lock", 2,
       [](Simulation& sim, int threads) {
         Mutex mutex;
         Atomic<int> own{0};
         std::string out;
         at_once(sim, threads, [&](int i) {
           if (i == 1) {
             out = mutex.try_lock() ? "free" : "taken";
             if (out == "free") mutex.unlock();
             return;
           }
           const std::lock_guard held(mutex);
           own.add_relaxed(1);
         });
         return out;
       }},
      {"wakes", 3,
       [](Simulation& sim, int threads) {
         Atomic<int> turn{0}, own[3];
         std::string out;
         at_once(sim, threads, [&](int i) {
           if (i == 0) {
             own[0].add_relaxed(1);
             turn.store_release(1);
             own[0].add_relaxed(1);
             turn.notify_one();
             turn.notify_one();
             return;
           }
           turn.wait(0);
           out += std::to_string(i) + std::to_string(turn.add_acq_rel(1)) + " ";
         });
         return out;
       }},
      {"one_is_woken", 4, one_is_woken, 1},
      {"sleeps_until", 2, give_way_beside_a_sleeper},
      {"deadlines", 2, condition_with_deadline},
      {"deadlines", 3, condition_with_deadline},
  };
}

std::vector<Program> all_programs() {
  std::vector<Program> out = programs();
  for (Program& each : programs_that_wait()) out.push_back(std::move(each));
  return out;
}

struct Ends {
  std::set<std::string> all;
  uint64_t schedules = 0;
};
Ends ends_of(const Program& program, const Scenario& scenario, size_t bound, Seen& seen) {
  Ends out;
  const test::Explored explored = test::explore_bound(
      scenario, bound, [&](Simulation& sim, int threads) { out.all.insert(program.run(sim, threads)); },
      seen);
  REQUIRE_MESSAGE(!explored.failure, program.name, ": ", *explored.failure);
  out.schedules = explored.schedules;
  return out;
}
Ends ends_of(const Program& program, const Scenario& scenario, size_t bound) {
  Seen seen;
  return ends_of(program, scenario, bound, seen);
}

TEST_CASE("seen states: with them there are fewer schedules, and all the outcomes that there are without") {
  for (const Program& program : all_programs()) {
    for (size_t bound = 0; bound <= program.most; ++bound) {
      CAPTURE(program.name);
      CAPTURE(program.threads);
      CAPTURE(bound);
      const Scenario scenario{.name = program.name.c_str(), .threads = program.threads};
      Scenario every = scenario;
      every.reduced = false;
      const Ends all = ends_of(program, every, bound), reduced = ends_of(program, scenario, bound);
      CHECK(reduced.all == all.all);
      CHECK(reduced.schedules <= all.schedules);
      if (bound == 3 && program.name != "try_lock") CHECK(reduced.schedules < all.schedules);
    }
  }
}

TEST_CASE("shares: each schedule is in one of them, and they have all outcomes also where states are seen") {
  for (const Program& program : all_programs()) {
    CAPTURE(program.name);
    const Scenario scenario{.name = program.name.c_str(), .threads = program.threads};
    Scenario every = scenario;
    every.reduced = false;
    Seen seen;
    const size_t bound = std::min<size_t>(2, program.most);
    const Ends whole = ends_of(program, every, bound);
    CHECK(ends_of(program, scenario, bound, seen).all == whole.all);
    for (const size_t shares : {2, 3}) {
      uint64_t schedules = 0;
      std::set<std::string> ends;
      for (size_t i = 0; i < shares; ++i) {
        Scenario of_every = every, part = scenario;
        of_every.share = part.share = {i, shares};
        schedules += ends_of(program, of_every, bound).schedules;
        ends.merge(ends_of(program, part, bound, seen).all);
      }
      CHECK(schedules == whole.schedules);
      CHECK(ends == whole.all);
    }
  }
}

// The count of a std::shared_ptr is no Atomic, and what reads it is ordered by nothing.
TEST_CASE("seen states: who goes on by what no Atomic orders is told that the reduction does not see it") {
  const test::Explored explored =
      test::explore_bound({.name = "unseen", .threads = 2}, 4, [](Simulation& sim, int threads) {
        int plain = 0, seen = 0;
        Atomic<int> meeting{0};
        at_once(sim, threads, [&](int i) {
          meeting.add_relaxed(1);
          meeting.load_relaxed();
          (i == 0 ? plain : seen) = i == 0 ? 1 : plain;
          meeting.load_relaxed();
          if (i == 1 && seen == 1) meeting.add_relaxed(1);
        });
      });
  REQUIRE(explored.failure.has_value());
  CHECK(explored.failure->find("goes on otherwise") != std::string::npos);
}

TEST_CASE("seen states: an Atomic that was never constructed has no name, and is told") {
  const test::Explored explored =
      test::explore_bound({.name = "unmade", .threads = 2}, 1, [](Simulation& sim, int threads) {
        static uint64_t run = 0;
        static uint64_t places[1000] = {};
        auto& word = *reinterpret_cast<Atomic<uint64_t>*>(&places[++run % 1000]);
        at_once(sim, threads, [&](int) { word.add_relaxed(1); });
      });
  REQUIRE(explored.failure.has_value());
  CHECK(explored.failure->find("never constructed") != std::string::npos);
}

TEST_CASE("left out: no thread is switched before operations on such words, which still tell states apart") {
  for (const bool is_left_out : {false, true}) {
    std::set<int> ends;
    const test::Explored explored =
        test::explore_bound({.name = "left_out", .threads = 2}, 3, [&](Simulation& sim, int threads) {
          const auto make = [] { return std::make_unique<Atomic<int>>(0); };
          const auto order = is_left_out ? sim.leave_out(make) : make();
          Atomic<int> begun{0};
          at_once(sim, threads, [&](int i) {
            begun.add_relaxed(1);
            order->store_relaxed(10 * order->load_relaxed() + i + 1);
          });
          ends.insert(order->newest());
        });
    CHECK_FALSE(explored.failure.has_value());
    CHECK(ends == (is_left_out ? std::set{12, 21} : std::set{1, 2, 12, 21}));
  }
}

TEST_CASE("seen states: a failure's schedule repeats it alone, without what was left out") {
  const Scenario scenario{"put_off", 2, 3};
  const test::ScheduledBody body = [](Simulation& sim, int threads) {
    Mutex mutex;
    Atomic<int> own[2];
    bool was_taken = false;
    at_once(sim, threads, [&](int i) {
      own[i].add_relaxed(1);
      if (i == 1) {
        own[i].add_relaxed(1);
        was_taken = !mutex.try_lock();
        if (!was_taken) mutex.unlock();
        return;
      }
      const std::lock_guard held(mutex);
      own[i].add_relaxed(1);
      own[i].add_relaxed(1);
    });
    sim.expect(!was_taken, "nobody sees it taken");
  };
  const test::Explored found = test::some_fails(scenario, body);
  REQUIRE(found.failure.has_value());
  const std::string words = "HEDDLE_SIM_SCHEDULE='put_off 2 ";
  const size_t at = found.failure->find(words);
  REQUIRE(at != std::string::npos);
  SystematicChoices again = SystematicChoices::replay(found.failure->substr(at + words.size()));
  CHECK(test::run_schedule(scenario, again, body).failure.find("nobody sees it taken") != std::string::npos);
}

TEST_CASE("shares: words that are none are told") {
  const auto share = test::share_of("2/8");
  REQUIRE(share.has_value());
  CHECK(share->which == 1);
  CHECK(share->of == 8);
  CHECK(test::share_of("8/8").has_value());
  for (const char* const words : {"", "3", "0/2", "3/2", "x/2"}) {
    CAPTURE(words);
    CHECK_FALSE(test::share_of(words).has_value());
  }
}

}  // namespace
}  // namespace heddle
