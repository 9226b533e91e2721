// rounds.h: how the benchmarks of base measure and report.
//
//   What       A Case is one way to do the work, under a name. compare() runs every case once a round, the
//              order rotated from round to round with a pause between, so that a change of the machine's
//              speed meets all of them alike.
//   Reported   Median and quartiles over the rounds, of the wall time per operation (elapsed / all
//              operations) and of the processor time per operation (sum over the threads / all operations).
//              Their ratio is the number of cores that the threads had: a busy neighbour shows there.
//   Checked    Each case says how many of its operations gave the right answer; one wrong one ends the
//              program with 1.
#pragma once

#include <ctime>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/thread.h"

namespace heddle::bench {

// The value, or the end of the program with the failure's text.
template <class T>
T require(Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", to_string(result.status()).c_str());
    std::exit(1);
  }
  return std::move(result).value();
}

// 1, 2, 4 and so on: up to `least`, or to one a processor where there are more.
inline std::vector<int> up_to_processors(int least) {
  std::vector<int> counts;
  for (int count = 1; count <= std::max(least, processors()); count *= 2) counts.push_back(count);
  return counts;
}

struct Case {
  std::string name;
  int threads;
  uint64_t operations;                      // of each thread
  std::function<uint64_t(int thread)> run;  // all operations of one thread; how many were right
};

struct Spread {
  double low = 0, median = 0, high = 0;  // quartiles
};

struct Figure {
  std::string name;
  int threads;
  Spread wall_ns, cpu_ns;
};

inline Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](size_t quarter) { return values[(values.size() - 1) * quarter / 4]; };
  return {at(1), at(2), at(3)};
}

inline double thread_cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

struct Taken {
  double wall_ns, cpu_ns;
};

inline Taken run_once(const Case& work) {
  std::vector<TimePoint> starts(static_cast<size_t>(work.threads)), ends(starts);
  std::vector<double> cpu(starts.size());
  Atomic<uint64_t> right;
  run_together(work.threads, [&](int thread) {
    const auto i = static_cast<size_t>(thread);
    const double before = thread_cpu_ns();
    starts[i] = Clock::real().now();
    right.add_relaxed(work.run(thread));
    ends[i] = Clock::real().now();
    cpu[i] = thread_cpu_ns() - before;
  });
  const uint64_t all = work.operations * static_cast<uint64_t>(work.threads);
  if (right.load_relaxed() != all) {
    std::fprintf(stderr, "%s: %llu of %llu operations gave the right answer\n", work.name.c_str(),
                 static_cast<unsigned long long>(right.load_relaxed()), static_cast<unsigned long long>(all));
    std::exit(1);
  }
  const Duration wall =
      *std::max_element(ends.begin(), ends.end()) - *std::min_element(starts.begin(), starts.end());
  double cpu_sum = 0;
  for (const double one : cpu) cpu_sum += one;
  return {static_cast<double>(wall.count()) / static_cast<double>(all), cpu_sum / static_cast<double>(all)};
}

inline std::vector<Figure> compare(const std::vector<Case>& cases, int rounds) {
  std::vector<std::vector<double>> wall(cases.size()), cpu(cases.size());
  for (int round = -1; round < rounds; ++round) {  // round -1 warms up
    for (size_t i = 0; i < cases.size(); ++i) {
      const size_t which = (i + static_cast<size_t>(round + 1)) % cases.size();
      const Taken taken = run_once(cases[which]);
      const timespec pause{0, 2'000'000};
      nanosleep(&pause, nullptr);
      if (round < 0) continue;
      wall[which].push_back(taken.wall_ns);
      cpu[which].push_back(taken.cpu_ns);
    }
  }
  std::vector<Figure> out;
  for (size_t i = 0; i < cases.size(); ++i) {
    out.push_back({cases[i].name, cases[i].threads, spread_of(wall[i]), spread_of(cpu[i])});
  }
  return out;
}

// How many cores the threads really had. Well below both the machine's and the threads' number, a neighbour
// had the rest.
inline double cores_of(const Figure& f) { return f.cpu_ns.median / f.wall_ns.median; }

inline void print(const std::vector<Figure>& figures) {
  std::printf("%-40s %7s %6s   %-24s %s\n", "", "threads", "cores", "wall ns (quartiles)",
              "cpu ns (quartiles)");
  bool starved = false;
  for (const Figure& f : figures) {
    std::printf("%-40s %7d %6.2f   %6.1f (%.1f .. %.1f)    %6.1f (%.1f .. %.1f)\n", f.name.c_str(), f.threads,
                cores_of(f), f.wall_ns.median, f.wall_ns.low, f.wall_ns.high, f.cpu_ns.median, f.cpu_ns.low,
                f.cpu_ns.high);
    starved = starved || (f.threads > 1 && cores_of(f) < 1.5);
  }
  if (starved) {
    std::printf(
        "Lines of several threads with fewer than 1.5 cores ran mostly in turn: they say nothing about "
        "contention.\n");
  }
}

// other / one. On one thread by processor time, which a neighbour does not change; on several by wall time,
// and only if they ran beside each other.
inline void print_ratio(const Figure& one, const Figure& other) {
  if (one.threads == 1) {
    std::printf("  %-40s 1 thread:  %.2f (cpu)\n", one.name.c_str(), other.cpu_ns.median / one.cpu_ns.median);
  } else if (cores_of(one) < 1.5 || cores_of(other) < 1.5) {
    std::printf("  %-40s %d threads: not measured, too few cores were free\n", one.name.c_str(), one.threads);
  } else {
    std::printf("  %-40s %d threads: %.2f (wall)\n", one.name.c_str(), one.threads,
                other.wall_ns.median / one.wall_ns.median);
  }
}

// `--json FILE` writes {"bench": name, "figures": [...]}; other arguments end the program with 2.
inline void write_json(int argc, char** argv, const char* name, const std::vector<Figure>& figures) {
  if (argc == 1) return;
  if (argc != 3 || std::string_view(argv[1]) != "--json") {
    std::fprintf(stderr, "usage: %s [--json FILE]\n", argv[0]);
    std::exit(2);
  }
  const auto spread = [](const Spread& s) {
    return text("{\"low\": ", s.low, ", \"median\": ", s.median, ", \"high\": ", s.high, "}");
  };
  std::string out = text("{\"bench\": \"", name, "\", \"figures\": [");
  for (size_t i = 0; i < figures.size(); ++i) {
    const Figure& f = figures[i];
    out += text(i == 0 ? "" : ",", "\n  {\"name\": \"", f.name, "\", \"threads\": ", f.threads,
                ", \"cores\": ", cores_of(f), ", \"wall_ns\": ", spread(f.wall_ns),
                ", \"cpu_ns\": ", spread(f.cpu_ns), "}");
  }
  std::ofstream file(argv[2]);
  file << out << "\n]}\n";
  if (!file.flush()) {
    std::fprintf(stderr, "cannot write '%s'\n", argv[2]);
    std::exit(1);
  }
}

}  // namespace heddle::bench
