#include "base/simulation.h"

#include <doctest/doctest.h>
#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/condition.h"
#include "base/simulation_fixture.h"
#include "base/sync.h"
#include "base/thread.h"
#include "base/yield.h"

namespace heddle {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

bool says(const SimulationReport& report, const std::string& words) {
  return report.failure.find(words) != std::string::npos;
}

std::vector<int> count_on_three_threads(Simulation& sim) {
  Guarded<std::vector<int>, Rank::kPool> order;
  run_together(3, [&](int thread) {
    for (int i = 0; i < 5; ++i) order.lock()->push_back(thread);
  });
  sim.expect(order.lock()->size() == 15, "each thread counted five times");
  return *order.lock();
}

// Says for its life what an environment variable is, or that there is none.
class EnvironmentVariable {
 public:
  EnvironmentVariable(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    set(value);
  }
  ~EnvironmentVariable() { set(before_ ? before_->c_str() : nullptr); }
  EnvironmentVariable(const EnvironmentVariable&) = delete;
  EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;

 private:
  void set(const char* value) { value == nullptr ? ::unsetenv(name_) : ::setenv(name_, value, 1); }
  const char* name_;
  std::optional<std::string> before_;
};

std::vector<std::vector<int>> orders_of_seeds(const char* only, const char* first, const char* times) {
  const EnvironmentVariable its_only("HEDDLE_SIM_SEED", only), its_first("HEDDLE_SIM_FIRST", first),
      its_times("HEDDLE_SIM_TIMES", times);
  std::vector<std::vector<int>> orders;
  test::holds_for_seeds(4, [&](Simulation& sim) { orders.push_back(count_on_three_threads(sim)); });
  return orders;
}

TEST_CASE("the seeds that a test runs are its own, or those that the environment asks for") {
  const std::vector<std::vector<int>> own = orders_of_seeds(nullptr, nullptr, nullptr);
  REQUIRE(own.size() == 4);
  CHECK(std::set(own.begin(), own.end()).size() > 1);
  CHECK(orders_of_seeds("3", nullptr, nullptr) == std::vector<std::vector<int>>{own[2]});
  CHECK(orders_of_seeds("3", "2", "2") == std::vector<std::vector<int>>{own[2]});
  const std::vector<std::vector<int>> twice = orders_of_seeds(nullptr, nullptr, "2"),
                                      later = orders_of_seeds(nullptr, "5", nullptr);
  REQUIRE(twice.size() == 8);
  CHECK(std::vector(twice.begin(), twice.begin() + 4) == own);
  CHECK(std::vector(twice.begin() + 4, twice.end()) == later);
}

TEST_CASE("equal seeds make equal decisions, and different seeds different ones") {
  std::set<uint64_t> seen;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const SimulationReport first = simulate(seed, count_on_three_threads);
    const SimulationReport second = simulate(seed, count_on_three_threads);
    REQUIRE(first.ok());
    REQUIRE(second.ok());
    CHECK(first.fingerprint == second.fingerprint);
    CHECK(first.steps == second.steps);
    CHECK(first.hand_overs == second.hand_overs);
    CHECK(first.took == second.took);
    seen.insert(first.fingerprint);
  }
  CHECK(seen.size() == 100);
}

TEST_CASE("the seed decides who comes first, and each order comes") {
  std::set<std::vector<int>> orders;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    std::vector<int> order;
    const SimulationReport report = simulate(seed, [&](Simulation&) {
      std::vector<Thread> threads;
      for (int i = 0; i < 3; ++i) {
        threads.emplace_back("one", [&, i] {
          yield_point("before");
          order.push_back(i);
        });
      }
    });
    REQUIRE(report.ok());
    orders.insert(order);
  }
  CHECK(orders.size() == 6);
}

TEST_CASE("for two seeds of three waits end for no reason, and for the third each waits until it is woken") {
  constexpr int kSeeds = 90;
  int disturbed = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const SimulationReport report = simulate(seed, [&](Simulation&) {
      Mutex mutex;
      Condition changed;
      bool over = false;
      int ends = 0;
      Thread waiter("waiter", [&] {
        std::unique_lock held(mutex);
        for (; !over; ++ends) changed.wait(held, Deadline::never());
      });
      for (int i = 0; i < 10'000; ++i) yield_point("work");
      {
        const std::lock_guard held(mutex);
        over = true;
      }
      changed.notify_all();
      waiter.join();
      disturbed += ends > 1 ? 1 : 0;
    });
    REQUIRE_MESSAGE(report.ok(), report.failure);
  }
  CHECK(disturbed > kSeeds / 2);
  CHECK(disturbed < kSeeds * 5 / 6);
}

constexpr int kSeedsOfTime = 90;

// Of so many seeds, those in which time jumps while a thread could run, and another one has such pauses.
int seeds_with_jumps(Duration pause) {
  int out = 0;
  for (uint64_t seed = 1; seed <= kSeedsOfTime; ++seed) {
    const SimulationReport report = simulate(seed, [&](Simulation& sim) {
      bool over = false;
      Thread sleeper("sleeper", [&] {
        while (!over) sim.pause(pause);
      });
      const TimePoint start = sim.now();
      for (int i = 0; i < 10'000; ++i) yield_point("work");
      out += sim.now() - start >= milliseconds(1) ? 1 : 0;  // what the steps take is a fifth of that
      over = true;
    });
    REQUIRE_MESSAGE(report.ok(), report.failure);
  }
  return out;
}

TEST_CASE("for two seeds of three time jumps while others could run, to a deadline that is near") {
  const int near = seeds_with_jumps(milliseconds(1));
  CHECK(near > kSeedsOfTime / 2);
  CHECK(near < kSeedsOfTime * 5 / 6);
  CHECK(seeds_with_jumps(SimulationOptions().stall_max + milliseconds(1)) == 0);
}

// Who of `threads` runs, in order, and for how many steps each time.
struct Stretch {
  int thread, steps;
};
std::vector<Stretch> stretches_of(uint64_t seed, int threads, int steps) {
  std::vector<Stretch> out;
  const SimulationReport report = simulate(seed, [&](Simulation&) {
    int left = steps;
    run_together(threads, [&](int thread) {
      for (yield_point("work"); left > 0; yield_point("work")) {
        --left;
        if (out.empty() || out.back().thread != thread) out.push_back({thread, 0});
        ++out.back().steps;
      }
    });
  });
  REQUIRE_MESSAGE(report.ok(), report.failure);
  return out;
}

TEST_CASE("for two seeds of three a switched thread stays away now and then: the other one runs on") {
  constexpr int kSeeds = 90, kLongest = 2 * 64 / 4;  // steps, after which a switch is due at any pace
  int alone = 0;
  std::ptrdiff_t long_ones = 0, short_ones = 0;  // of such seeds
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const std::vector<Stretch> all = stretches_of(seed, 2, 10'000);
    const auto is_long = [](Stretch each) { return each.steps > kLongest; };
    const std::ptrdiff_t those = std::count_if(all.begin(), all.end(), is_long);
    if (those == 0) continue;
    ++alone;
    long_ones += those;
    short_ones += std::ssize(all) - those;
  }
  CHECK(alone > kSeeds / 2);
  CHECK(alone < kSeeds * 5 / 6);
  CHECK(3 * long_ones < short_ones);
}

TEST_CASE("for some seeds one of nine threads has less than a third of the turns of any other") {
  constexpr int kSeeds = 60;
  int slow = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    std::vector<int> turns(9);
    for (const Stretch& each : stretches_of(seed, 9, 10'000)) ++turns[static_cast<size_t>(each.thread)];
    std::sort(turns.begin(), turns.end());
    slow += 3 * turns[0] < turns[1] ? 1 : 0;
  }
  CHECK(slow > kSeeds / 6);
  CHECK(slow < kSeeds * 4 / 5);
}

TEST_CASE("time is virtual: it stands in no relation to the machine's") {
  const TimePoint begin = Clock::real().now();
  const SimulationReport report = simulate(1, [](Simulation& sim) {
    const TimePoint start = Clock::real().now();
    Guarded<bool, Rank::kPool> never(false);
    sim.expect(!never.lock().wait_until(Deadline::in(seconds(3600)), [&] { return false; }),
               "no one notifies");
    sim.expect(Clock::real().now() - start >= seconds(3600), "the deadline was waited for");
    sim.pause(seconds(60));
    const TimePoint until = Clock::real().now() + milliseconds(5);
    while (Clock::real().now() < until) give_way();
  });
  CHECK_MESSAGE(report.ok(), report.failure);
  CHECK(report.took >= seconds(3660));
  CHECK(Clock::real().now() - begin < seconds(30));
}

TEST_CASE("a thread's processor time grows while it runs only") {
  const SimulationReport report = simulate(7, [](Simulation& sim) {
    const Duration before = thread_cpu_time();
    sim.pause(seconds(1));
    sim.expect(thread_cpu_time() - before < milliseconds(1), "a pause is not processor time");
    for (int i = 0; i < 1000; ++i) yield_point("work");
    sim.expect(thread_cpu_time() - before >= Simulation::kStep * 1000, "steps are");
  });
  CHECK_MESSAGE(report.ok(), report.failure);
}

TEST_CASE("what a thread does at its end, thread-local objects included, is simulated") {
  static Guarded<int, Rank::kPool> ended(0);
  struct AtEnd {
    bool used = false;
    ~AtEnd() {
      if (used) ++*ended.lock();
    }
  };
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    *ended.lock() = 0;
    const SimulationReport report = simulate(seed, [](Simulation& sim) {
      run_together(3, [](int) {
        thread_local AtEnd at_end;
        at_end.used = true;
        yield_point("body");
      });
      sim.expect(*ended.lock() == 3, "joined threads have ended, their thread-local objects too");
    });
    REQUIRE_MESSAGE(report.ok(), report.failure);
  }
}

TEST_CASE("an exception that leaves a thread, or the body, is a failure that names it") {
  const SimulationReport of_thread = simulate(
      3, [](Simulation&) { Thread("thrower", [] { throw std::runtime_error("out of here"); }).join(); });
  CHECK(says(of_thread, "'thrower'"));
  CHECK(says(of_thread, "out of here"));
  const SimulationReport of_body = simulate(3, [](Simulation&) { throw 1; });
  CHECK(says(of_body, "an exception left 'body'"));
}

TEST_CASE("a livelock is a failure once the steps are used up") {
  const SimulationReport report = simulate(5,
                                           [](Simulation&) {
                                             Atomic<bool> never;
                                             run_together(2, [&](int) {
                                               while (!never.load_acquire()) give_way();
                                             });
                                           },
                                           {.steps_max = 20'000});
  CHECK(says(report, "more than 20000 steps"));
  CHECK(says(report, "'together-0' (2)"));
  CHECK(says(report, "give_way"));
}

TEST_CASE("a failure shows the last decisions, in order, and no more of them than it is told") {
  for (const size_t most : {size_t{0}, size_t{5}, size_t{40}}) {
    const SimulationReport report = simulate(5,
                                             [](Simulation&) {
                                               Atomic<bool> never;
                                               run_together(2, [&](int) {
                                                 while (!never.load_acquire()) give_way();
                                               });
                                             },
                                             {.steps_max = 2'000, .trace_max = most});
    std::vector<int> steps;
    std::istringstream lines(report.failure);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("  step ")) steps.push_back(std::stoi(line.substr(7)));
    }
    CHECK(steps.size() == most);
    CHECK(std::is_sorted(steps.begin(), steps.end()));
    if (most != 0) CHECK(steps.back() > 1'900);
  }
}

TEST_CASE("a failure shows of each decision from which thread to which, and one name where none gave way") {
  int hand_overs = 0, jumps = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const SimulationReport report = simulate(seed, [](Simulation& sim) {
      run_together(2, [&](int) { sim.pause(milliseconds(1)); });
      sim.fail("on purpose");
    });
    std::istringstream lines(report.failure);
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("  step ")) continue;
      const size_t first = line.find('\''), next = line.find(" -> ");
      const bool is_own = line.ends_with(" at time jumps") || line.ends_with(" at no reason");
      CHECK((next == std::string::npos) == is_own);
      (is_own ? jumps : hand_overs) += 1;
      if (next == std::string::npos) continue;
      const std::string from = line.substr(first, line.find(')') + 1 - first);
      CHECK(line.substr(next + 4) != from);
    }
  }
  CHECK(hand_overs > 0);
  CHECK(jumps > 0);
}

TEST_CASE("locks in the wrong order are a failure with a seed, not the end of the process") {
  const SimulationReport report = simulate(5, [](Simulation&) {
    Guarded<int, Rank::kPool> outer(0);
    Guarded<int, Rank::kStream> inner(0);
    const auto held = inner.lock();
    *outer.lock() = 1;
  });
#ifndef NDEBUG
  CHECK(says(report, "seed 5"));
  CHECK(says(report, "'pool' is taken while 'stream'"));
#else
  CHECK(report.ok());
#endif
}

TEST_CASE("waits end for no reason under some seeds, and not before their deadline under others") {
  bool early = false, on_time = false;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const SimulationReport report = simulate(seed, [&](Simulation&) {
      Mutex mutex;
      Condition changed;
      Thread other("other", [] {
        for (int i = 0; i < 50; ++i) yield_point("work");
      });
      std::unique_lock held(mutex);
      const Deadline deadline = Deadline::in(seconds(1));
      changed.wait(held, deadline);
      (deadline.expired() ? on_time : early) = true;
    });
    REQUIRE_MESSAGE(report.ok(), report.failure);
  }
  CHECK(early);
  CHECK(on_time);
}

TEST_CASE("who waits alone waits until its deadline, whatever the seed: a thread that runs is not woken") {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const SimulationReport report = simulate(seed, [](Simulation& sim) {
      Mutex mutex;
      Condition never;
      std::unique_lock held(mutex);
      for (int i = 0; i < 20; ++i) {
        const Deadline deadline = Deadline::in(seconds(1));
        never.wait(held, deadline);
        sim.expect(deadline.expired(), "nobody notifies");
      }
    });
    REQUIRE_MESSAGE(report.ok(), report.failure);
  }
}

// For its life no new thread has room for its stack.
class NoNewThreads {
 public:
  NoNewThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t none;
    pthread_attr_init(&none);
    pthread_attr_setstacksize(&none, size_t{1} << 50);
    pthread_setattr_default_np(&none);
    pthread_attr_destroy(&none);
  }
  ~NoNewThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoNewThreads(const NoNewThreads&) = delete;
  NoNewThreads& operator=(const NoNewThreads&) = delete;

 private:
  pthread_attr_t before_;
};

TEST_CASE("a thread that the system does not start is none of the simulation, and the others go on") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const SimulationReport report = simulate(seed, [](Simulation& sim) {
      int steps = 0;
      Thread other("other", [&] {
        for (; steps < 100; ++steps) yield_point("work");
      });
      {
        const NoNewThreads none;
        sim.expect(Thread::start("refused", [] {}).status().code() == Code::exhausted, "it is refused");
      }
      sim.pause(milliseconds(1));
      other.join();
      sim.expect(steps == 100, "the other one has ended");
    });
    REQUIRE_MESSAGE(report.ok(), report.failure);
  }
}

TEST_CASE("a thread that blocks outside the seams is named once the patience is over") {
  const SimulationReport report =
      simulate(5,
               [](Simulation&) {
                 Thread("blocker", [] {
                   static std::atomic<bool> never{false};  // no Atomic: the simulation does not see it
                   never.wait(false);
                 }).join();
               },
               {.patience = milliseconds(100)});
  CHECK(says(report, "'blocker' (2) runs"));
  CHECK(says(report, "it blocks natively"));
}

TEST_CASE("only a simulated thread has a current simulation") {
  CHECK(Simulation::current() == nullptr);
  const SimulationReport report = simulate(5, [](Simulation& sim) {
    sim.expect(Simulation::current() == &sim, "the body's");
    Thread("other", [&] { sim.expect(Simulation::current() == &sim, "and its threads'"); }).join();
  });
  CHECK_MESSAGE(report.ok(), report.failure);
}

TEST_CASE(
    "a thread may be joined inside a simulation that it is not of, and outside of the one that it was of") {
  Atomic<int> outside_ran{0}, inside_ran{0};
  Thread outside("outside", [&] { outside_ran.add_relaxed(1); }), inside;
  const SimulationReport report = simulate(5, [&](Simulation&) {
    outside.join();
    inside = Thread("inside", [&] { inside_ran.add_relaxed(1); });
    while (inside_ran.load_relaxed() == 0) give_way();
  });
  CHECK_MESSAGE(report.ok(), report.failure);
  inside.join();
  CHECK(outside_ran.load_relaxed() == 1);
  CHECK(inside_ran.load_relaxed() == 1);
}

TEST_CASE("threads outside a simulation go on as ever beside one") {
  Atomic<uint64_t> native{0};
  Atomic<bool> stop{false};
  Thread outside("outside", [&] {
    Guarded<int, Rank::kPool> own(0);
    while (!stop.load_acquire()) {
      ++*own.lock();
      native.add_relaxed(1);
    }
  });
  for (uint64_t seed = 1; seed <= 50; ++seed) REQUIRE(simulate(seed, count_on_three_threads).ok());
  while (native.load_relaxed() == 0) give_way();
  stop.store_release(true);
  outside.join();
  CHECK(native.load_relaxed() > 0);
}

}  // namespace
}  // namespace heddle
