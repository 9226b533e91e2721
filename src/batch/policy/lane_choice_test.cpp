#include "batch/policy/lane_choice.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace heddle::batch {
namespace {

using std::chrono::microseconds;

// Callers without end in front of a machine that serves rate(lanes) rows a second, more or less.
struct Machine {
  std::string name;
  int most;
  std::function<double(int lanes)> rate;
  std::vector<int> best;  // any of these
};

struct Clocked {
  LaneChoice choice;
  TimePoint now = TimePoint(std::chrono::hours(1));
  std::mt19937 random{7};
  double served = 0;
  std::chrono::duration<double> spent{0};

  void serve(const std::function<double(int)>& rate, double seconds, double noise = 0.03) {
    std::normal_distribution<double> off(1, noise);
    const TimePoint end = now + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
    while (now < end) {
      const int64_t rows = 1 + static_cast<int64_t>(random() % 8);
      const double took = static_cast<double>(rows) / (rate(choice.lanes()) * std::max(0.5, off(random)));
      now += std::chrono::duration_cast<Duration>(std::chrono::duration<double>(took));
      spent += std::chrono::duration<double>(took);
      served += static_cast<double>(rows);
      choice.served(rows, now);
    }
  }
};

double peak(int lanes, double at) { return 1e5 / (1 + std::abs(std::log2(lanes / at)) / 2); }

const std::vector<Machine> kMachines = {
    {"sixteen cores that fight for memory", 16, [](int n) { return peak(n, 4); }, {4}},
    {"sixteen cores, callers behind one lock of theirs", 16, [](int n) { return peak(n, 1); }, {1}},
    {"sixteen cores, all of use", 16, [](int n) { return 1e4 * n; }, {16}},
    {"two cores, each of use", 2, [](int n) { return 1e4 * n; }, {2}},
    {"two cores, better together", 2, [](int n) { return peak(n, 1); }, {1}},
    {"twelve cores", 12, [](int n) { return peak(n, 3); }, {3}},
    {"128 cores with a cliff beyond 32 lanes", 128, [](int n) { return n > 32 ? 1e6 / n : 1e3 * n; }, {32}},
    {"no difference", 16, [](int) { return 3e4; }, {4}},
    {"one lane", 1, [](int) { return 3e4; }, {1}},
};

TEST_CASE("lane choice: the lanes that serve most are found, and kept") {
  for (const Machine& machine : kMachines) {
    CAPTURE(machine.name);
    Clocked run{.choice = LaneChoice(machine.most)};
    run.serve(machine.rate, 2);
    CHECK(std::count(machine.best.begin(), machine.best.end(), run.choice.chosen()) == 1);
    run.served = 0;
    run.spent = {};
    run.serve(machine.rate, 3);
    CHECK(std::count(machine.best.begin(), machine.best.end(), run.choice.chosen()) == 1);
    // What looking elsewhere costs.
    CHECK(run.served / run.spent.count() > 0.95 * machine.rate(machine.best[0]));
  }
}

TEST_CASE("lane choice: other callers are noticed within a second") {
  Clocked run{.choice = LaneChoice(16)};
  run.serve([](int n) { return peak(n, 16); }, 5);
  CHECK(run.choice.chosen() == 16);
  run.serve([](int n) { return 0.2 * peak(n, 2); }, 1);
  CHECK(run.choice.chosen() == 2);
  run.serve([](int n) { return 3 * peak(n, 16); }, 1);
  CHECK(run.choice.chosen() == 16);
}

TEST_CASE(
    "lane choice: one lane is taken where it is suggested at the begin, and left where others serve more") {
  Clocked alone{.choice = LaneChoice(16)};
  alone.choice.suggest_one();
  CHECK(alone.choice.lanes() == 1);
  CHECK(alone.choice.for_lone_calls() == 1);
  alone.serve([](int n) { return peak(n, 1); }, 1);
  CHECK(alone.choice.chosen() == 1);
  alone.serve([](int n) { return 1e4 * n; }, 2);
  CHECK(alone.choice.chosen() == 16);
  alone.choice.suggest_one();  // too late
  CHECK(alone.choice.chosen() == 16);
}

TEST_CASE("lane choice: runs far apart say nothing") {
  LaneChoice choice(16);
  TimePoint now = TimePoint(std::chrono::hours(1));
  for (int i = 0; i < 1000; ++i) {
    now += 2 * LaneChoice::kGap;
    choice.served(1, now);
    CHECK(choice.lanes() == 4);
  }
}

TEST_CASE("lane choice: it begins as many steps from one lane as from all") {
  for (const auto& [most, first] :
       std::vector<std::pair<int, int>>{{1, 1}, {2, 2}, {4, 2}, {12, 3}, {16, 4}, {32, 8}, {128, 16}}) {
    CHECK(LaneChoice(most).lanes() == first);
    CHECK(LaneChoice(most).for_lone_calls() == most);  // nothing is known against it
  }
}

TEST_CASE("lane choice: lanes are between one and the most, whatever is served") {
  std::mt19937 random(11);
  for (const int most : {1, 2, 3, 7, 16, 100}) {
    LaneChoice choice(most);
    TimePoint now = TimePoint(std::chrono::hours(1));
    int out_of_bounds = 0, changes = 0;
    for (int i = 0; i < 20000; ++i) {
      now += microseconds(random() % 400);
      const int before = choice.lanes();
      choice.served(static_cast<int64_t>(random() % 70), now);
      changes += choice.lanes() != before ? 1 : 0;
      out_of_bounds += choice.lanes() < 1 || choice.lanes() > most ? 1 : 0;
    }
    CHECK(out_of_bounds == 0);
    CHECK((changes > 0) == (most > 1));
  }
}

}  // namespace
}  // namespace heddle::batch
