// Question  Are as many processes, each with a model of its own, faster than threads that share one?
// Peer      In the same run: worker processes, forked before this one uses Heddle, which wait at a pipe.
// Read as   calls a second of an MLP 256-512-256 over f32[1, 256], by N threads of one process and by N
//           processes with one thread each, N up to the processors; kTrials trials, in turn. The ratio
//           threads / processes has its mean and the 95 % interval of the mean (Student's t). Calls, not the
//           start of a process, are timed; each process has a copy of the weights.
// Checked   every result, against the reference interpreter.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/thread.h"
#include "bench/base/rounds.h"
#include "heddle/heddle.h"

namespace heddle::bench {
namespace {

constexpr int kTrials = 30;
constexpr double kStudent = 2.045;  // 97.5 % of Student's t with 29 degrees of freedom
constexpr uint64_t kCalls = 400;    // of each thread or process in a trial
constexpr int64_t kOuter = 256, kInner = 512;

[[noreturn]] void give_up(const char* why) {
  std::fprintf(stderr, "%s\n", why);
  std::_Exit(1);
}

struct Work {
  Model model;
  Tensor input, expected;

  uint64_t run() const {
    uint64_t right = 0;
    const auto want = expected.values<float>();
    for (uint64_t i = 0; i < kCalls; ++i) {
      const Tensor y = model({input})[0];
      const auto got = y.values<float>();
      const bool same = std::equal(got.begin(), got.end(), want.begin(), want.end(),
                                   [](float a, float b) { return std::abs(a - b) < 1e-3F; });
      right += same ? 1 : 0;
    }
    return right;
  }
};

Tensor pattern(const Shape& shape, float scale) {
  Tensor made = Tensor::zeros(DType::f32, shape);
  auto* data = static_cast<float*>(made.mutable_data());
  for (int64_t i = 0; i < made.elements(); ++i) data[i] = scale * static_cast<float>((i * 37) % 101 - 50);
  return made;
}

Work make_work() {
  GraphBuilder graph("mlp");
  const auto x = graph.input("x", DType::f32, {"batch", kOuter});
  const auto hidden =
      graph.add("Relu", {graph.add("MatMul", {x, graph.constant(pattern({kOuter, kInner}, 2e-3F))})});
  graph.output(graph.add("MatMul", {hidden, graph.constant(pattern({kInner, kOuter}, 1e-3F))}), "y");
  const Tensor input = pattern({1, kOuter}, 0.02F);
  const Tensor expected = graph.evaluate(std::span(&input, 1))[0];
  return {graph.build(), input, expected};
}

// A process that makes a model of its own and does a trial's calls for each byte that comes.
class Worker {
 public:
  Worker() {
    if (pipe(to_) != 0 || pipe(from_) != 0) give_up("no pipe");
    pid_ = fork();
    if (pid_ < 0) give_up("no process");
    if (pid_ == 0) serve();
    close(to_[0]);
    close(from_[1]);
  }
  // By a word: those forked later have this pipe's end, too, so that closing it says nothing.
  ~Worker() {
    const char stop = 0;
    if (write(to_[1], &stop, 1) != 1) give_up("a process is gone");
    close(to_[1]);
    close(from_[0]);
    waitpid(pid_, nullptr, 0);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void begin() const {
    const char go = 1;
    if (write(to_[1], &go, 1) != 1) give_up("a process is gone");
  }
  uint64_t end() const {
    uint64_t right = 0;
    if (read(from_[0], &right, sizeof right) != sizeof right) give_up("a process is gone");
    return right;
  }

 private:
  [[noreturn]] void serve() const {
    close(to_[1]);
    close(from_[0]);
    {
      const Work work = make_work();
      char go = 0;
      while (read(to_[0], &go, 1) == 1 && go != 0) {
        const uint64_t right = work.run();
        if (write(from_[1], &right, sizeof right) != sizeof right) break;
      }
    }
    std::_Exit(0);
  }
  int to_[2] = {}, from_[2] = {};
  pid_t pid_ = 0;
};

double seconds_since(TimePoint begin) {
  return std::chrono::duration<double>(Clock::real().now() - begin).count();
}

double rate(uint64_t right, int workers, double seconds) {
  const uint64_t all = kCalls * static_cast<uint64_t>(workers);
  if (right != all) give_up("not every call gave the right answer");
  return static_cast<double>(all) / seconds;
}

struct Interval {
  double mean, low, high;
};
Interval interval_of(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  double mean = 0, squares = 0;
  for (const double value : values) mean += value / n;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const double half = kStudent * std::sqrt(squares / (n - 1) / n);
  return {mean, mean - half, mean + half};
}

struct Line {
  int workers;
  Interval threads, processes, ratio;
};

Line measure(const Work& work, const std::vector<Worker>& pool, int workers) {
  std::vector<double> threads, processes, ratios;
  for (int trial = -1; trial < kTrials; ++trial) {  // -1 warms up
    double rates[2] = {};
    for (int i = 0; i < 2; ++i) {
      const bool by_threads = (trial + i) % 2 == 0;
      Atomic<uint64_t> right{0};
      const TimePoint begin = Clock::real().now();
      if (by_threads) {
        run_together(workers, [&](int) { right.add_relaxed(work.run()); });
      } else {
        for (int k = 0; k < workers; ++k) pool[static_cast<size_t>(k)].begin();
        for (int k = 0; k < workers; ++k) right.add_relaxed(pool[static_cast<size_t>(k)].end());
      }
      rates[by_threads ? 0 : 1] = rate(right.load_relaxed(), workers, seconds_since(begin));
    }
    if (trial < 0) continue;
    threads.push_back(rates[0]);
    processes.push_back(rates[1]);
    ratios.push_back(rates[0] / rates[1]);
  }
  return {workers, interval_of(threads), interval_of(processes), interval_of(ratios)};
}

int run(int argc, char** argv) {
  if (argc != 1 && (argc != 3 || std::string_view(argv[1]) != "--json")) {
    std::fprintf(stderr, "usage: %s [--json FILE]\n", argv[0]);
    return 2;
  }
  const std::vector<int> counts = up_to_processors(4);
  const std::vector<Worker> pool(static_cast<size_t>(counts.back()));
  const Work work = make_work();
  std::string out = "{\"bench\": \"process_pool\", \"figures\": [";
  std::printf("%8s  %-34s %-34s %s\n", "workers", "threads, calls/s (95 %)", "processes, calls/s (95 %)",
              "threads / processes (95 %)");
  for (const int count : counts) {
    const Line line = measure(work, pool, count);
    std::printf("%8d", line.workers);
    for (const Interval& each : {line.threads, line.processes})
      std::printf("  %10.0f (%.0f .. %.0f)", each.mean, each.low, each.high);
    std::printf("  %.2f (%.2f .. %.2f)\n", line.ratio.mean, line.ratio.low, line.ratio.high);
    const auto written = [](const Interval& i) {
      return text("{\"mean\": ", i.mean, ", \"low\": ", i.low, ", \"high\": ", i.high, "}");
    };
    out += text(count == counts[0] ? "" : ",", "\n  {\"workers\": ", count,
                ", \"threads\": ", written(line.threads), ", \"processes\": ", written(line.processes),
                ", \"ratio\": ", written(line.ratio), "}");
  }
  if (argc == 1) return 0;
  std::ofstream file(argv[2]);
  file << out << "\n]}\n";
  return file.flush() ? 0 : 1;
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) { return heddle::bench::run(argc, argv); }
