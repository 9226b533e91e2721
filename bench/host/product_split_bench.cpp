// product_split_bench.cpp: how are products best cut on this processor, and is what was chosen the best?
//
//   Question  Of each way that may be chosen for a product of 1 to 64 rows: what does it cost one core, and
//             what does it cost all cores together?
//   Read as   Microseconds a product, median and quartiles over the rounds, ways in turn; "x 1.00" is the
//             way's time over that of the best way. R: what is taken unmeasured. M: what the tuner of a
//             fresh process chooses (HEDDLE_TUNE=all); none where the machine was too busy to tell. A
//             chosen way's ratio should be near 1.
//   Memory    Before a product on all cores each thread reads 2 MiB of something else, as between the layers
//             of a model; on one core the weight is as warm as the product before left it.
//   Checked   Every way's values, against sums in double.
//
// usage: product_split_bench [--threads N] [--rounds N] [--only WORD] [--json FILE]
//   --only: products whose line has the word ("mlp", "bf16", " 64 x")
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "bench/base/rounds.h"
#include "device/plain_source_fixture.h"
#include "drivers/host/host_device.h"
#include "drivers/host/machine/cpu_budget.h"
#include "drivers/host/onednn/omp_scope.h"
#include "drivers/host/onednn/product_choice.h"
#include "drivers/host/onednn/product_trial.h"
#include "drivers/host/onednn/product_tuning.h"

namespace heddle::bench {
namespace {

using namespace heddle::host;

struct Layer {
  const char* model;
  int64_t k, n;
};
constexpr Layer kLayers[] = {{"mlp", 512, 1024},     {"mlp", 1024, 1024},   {"mlp", 1024, 512},
                             {"encoder", 256, 256},  {"encoder", 256, 768}, {"encoder", 256, 1024},
                             {"encoder", 1024, 256}, {"minilm", 384, 384},  {"minilm", 384, 1536},
                             {"minilm", 1536, 384}};
constexpr int64_t kRows[] = {1, 2, 4, 8, 16, 32, 64};

struct Options {
  int threads = read_budget().cores, rounds = 15;
  std::string only, json;
};

struct Line {
  std::string product, way;
  int cores;
  Spread us;
  double ratio;  // to the best way of the product on as many cores
  bool rule, chosen;
};

// The product's values by sums in double. x[i, k] = (i + k) % 7 - 3 and w[k, j] = ((3 k + j) % 5 - 2) / 4 are
// exact in bf16.
float x_at(int64_t i, int64_t k) { return static_cast<float>((i + k) % 7 - 3); }
float w_at(int64_t k, int64_t j) { return static_cast<float>((3 * k + j) % 5 - 2) / 4; }

class Subject {
 public:
  Subject(const Ref<const Engine>& engine, device::Device& device, const Layer& layer, int64_t rows)
      : engine_(engine), store_(engine, device::plain_source(device)) {
    problem_.m = rows;
    problem_.k = layer.k;
    problem_.n = layer.n;
    problem_.bias = true;
    std::vector<float> w;
    for (int64_t k = 0; k < layer.k; ++k) {
      for (int64_t j = 0; j < layer.n; ++j) w.push_back(w_at(k, j));
    }
    weight_ = require(pack_linear_weight(store_, w.data(), layer.k, layer.n, false));
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < layer.n; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < layer.k; ++k) sum += double{x_at(i, k)} * double{w_at(k, j)};
        wanted_.push_back(sum);
      }
    }
  }

  ProductTrial trial(const std::vector<Way>& ways) const {
    ProductTrial made = require(ProductTrial::make(*engine_, problem_, weight_, ways));
    for (int64_t i = 0; i < problem_.m; ++i) {
      for (int64_t k = 0; k < problem_.k; ++k) made.x()[static_cast<size_t>(i * problem_.k + k)] = x_at(i, k);
    }
    return made;
  }
  void check(const ProductTrial& trial, const std::string& what) const {
    const auto* y = reinterpret_cast<const float*>(trial.y().data());
    for (size_t i = 0; i < wanted_.size(); ++i) {
      if (std::abs(y[i] - wanted_[i]) <= 1e-3 * (1 + std::abs(wanted_[i]))) continue;
      std::fprintf(stderr, "%s: element %zu is %g, not %g\n", what.c_str(), i, double{y[i]}, wanted_[i]);
      std::exit(1);
    }
  }
  ProductShape shape() const { return shape_of(*engine_, problem_, *weight_); }
  const ProductProblem& problem() const { return problem_; }
  const Ref<const LinearWeight>& weight() const { return weight_; }
  const Engine& engine() const { return *engine_; }

 private:
  Ref<const Engine> engine_;
  WeightStore store_;
  ProductProblem problem_;
  Ref<const LinearWeight> weight_;
  std::vector<double> wanted_;
};

class Comparison {
 public:
  Comparison(const Options& options, Ref<Team> team)
      : options_(options),
        team_(std::move(team)),
        tuning_({.all = true}, team_),
        others_(ProductTuning::kOtherBytes) {}

  void compare(const Subject& subject, const std::string& name) {
    const ProductShape shape = subject.shape();
    const int width = team_->width();
    report(name, 1, subject, ways_alone(shape), Way{},
           require(tuning_.alone(subject.engine(), subject.problem(), subject.weight())));
    if (width > 1) {
      report(name, width, subject, ways_shared(shape, width), default_shared(shape, width),
             require(tuning_.shared(subject.engine(), subject.problem(), subject.weight(), width)));
    }
  }
  const std::vector<Line>& lines() const { return lines_; }
  int disturbed() const { return disturbed_; }  // runs that other processes came between

 private:
  void report(const std::string& name, int cores, const Subject& subject, const std::vector<Way>& ways,
              const Way& rule, const std::optional<Way>& chosen) {
    ProductTrial trial = subject.trial(ways);
    std::vector<std::vector<double>> times(ways.size());
    for (int round = -2; round < options_.rounds; ++round) {
      for (size_t turn = 0; turn < ways.size(); ++turn) {
        const size_t i = (turn + static_cast<size_t>(round + 2)) % ways.size();
        const Result<Duration> measured = cores == 1 ? trial.time_alone(i, Clock::real())
                                                     : trial.time_shared(i, Clock::real(), *team_, others_);
        if (measured.status().code() == Code::unavailable) {
          ++disturbed_;
          continue;
        }
        const Duration taken = require(measured);
        if (taken == Duration::max()) continue;
        subject.check(trial, text(name, ", ", to_string(ways[i])));
        if (round >= 0) times[i].push_back(static_cast<double>(taken.count()) / 1e3);
      }
    }
    double best = INFINITY;
    for (const std::vector<double>& of : times)
      best = of.empty() ? best : std::min(best, spread_of(of).median);
    const auto is = [&](const Way& way, const std::optional<Way>& other) {
      return other && cut(subject.shape(), way) == cut(subject.shape(), *other);
    };
    for (size_t i = 0; i < ways.size(); ++i) {
      if (times[i].empty()) continue;
      const Spread us = spread_of(times[i]);
      lines_.push_back(
          {name, to_string(ways[i]), cores, us, us.median / best, is(ways[i], rule), is(ways[i], chosen)});
      const Line& l = lines_.back();
      std::printf("%-32s %3d %s  %-26s %9.1f (%.1f .. %.1f)  x %.2f %s%s\n", name.c_str(), cores,
                  cores == 1 ? "core " : "cores", l.way.c_str(), us.median, us.low, us.high, l.ratio,
                  l.rule ? "R" : "", l.chosen ? "M" : "");
    }
    std::fflush(stdout);
  }

  const Options& options_;
  Ref<Team> team_;
  ProductTuning tuning_;
  std::vector<std::byte> others_;
  std::vector<Line> lines_;
  int disturbed_ = 0;
};

// How near the rule and the tuner come to the best, over all products.
void print_summary(const std::vector<Line>& lines, int cores) {
  std::vector<double> rule, chosen;
  for (const Line& line : lines) {
    if (line.cores != cores) continue;
    if (line.rule) rule.push_back(line.ratio);
    if (line.chosen) chosen.push_back(line.ratio);
  }
  for (const auto& [what, of] : {std::pair("by rule", &rule), std::pair("measured", &chosen)}) {
    if (of->empty()) continue;
    const Spread s = spread_of(*of);
    std::printf("%d cores, %s: %zu products, x %.2f (%.2f .. %.2f) of the best way, at worst x %.2f\n", cores,
                what, of->size(), s.median, s.low, s.high, *std::ranges::max_element(*of));
  }
}

void write_lines(const std::string& path, const std::vector<Line>& lines) {
  std::ofstream file(path);
  file << "{\"bench\": \"product_split\", \"lines\": [";
  for (size_t i = 0; i < lines.size(); ++i) {
    const Line& l = lines[i];
    file << text(i == 0 ? "" : ",", "\n  {\"product\": \"", l.product, "\", \"cores\": ", l.cores,
                 ", \"way\": \"", l.way, "\", \"us\": {\"low\": ", l.us.low, ", \"median\": ", l.us.median,
                 ", \"high\": ", l.us.high, "}, \"ratio\": ", l.ratio,
                 ", \"rule\": ", l.rule ? "true" : "false", ", \"measured\": ", l.chosen ? "true" : "false",
                 "}");
  }
  file << "\n]}\n";
  if (!file.flush()) {
    std::fprintf(stderr, "cannot write '%s'\n", path.c_str());
    std::exit(1);
  }
}

Options options_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    const char* const value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (value != nullptr && name == "--threads" && std::atoi(value) > 0) {
      options.threads = std::atoi(value);
    } else if (value != nullptr && name == "--rounds" && std::atoi(value) > 0) {
      options.rounds = std::atoi(value);
    } else if (value != nullptr && name == "--only") {
      options.only = value;
    } else if (value != nullptr && name == "--json") {
      options.json = value;
    } else {
      std::fprintf(stderr, "usage: %s [--threads N] [--rounds N] [--only WORD] [--json FILE]\n", argv[0]);
      std::exit(2);
    }
  }
  return options;
}

int run(int argc, char** argv) {
  const Options options = options_of(argc, argv);
  const OmpScope team_of_one;
  const auto device = require(make_host_device({.threads = 1}));
  Comparison comparison(options, std::make_shared<Team>(options.threads));
  for (const bool bf16 : {false, true}) {
    const auto engine = make_engine(bf16);
    if (!engine.ok()) {
      std::printf("bf16: left out, %s\n", to_string(engine.status()).c_str());
      continue;
    }
    for (const Layer& layer : kLayers) {
      for (const int64_t rows : kRows) {
        const std::string name =
            text(layer.model, ' ', rows, " x ", layer.k, " x ", layer.n, bf16 ? " bf16" : " f32");
        if (name.find(options.only) != std::string::npos)
          comparison.compare(Subject(*engine, *device, layer, rows), name);
      }
    }
  }
  if (comparison.disturbed() > 0) {
    std::printf("%d runs on all cores were left out: other processes had some of the cores\n",
                comparison.disturbed());
  }
  print_summary(comparison.lines(), 1);
  if (options.threads > 1) print_summary(comparison.lines(), options.threads);
  if (!options.json.empty()) write_lines(options.json, comparison.lines());
  return 0;
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) { return heddle::bench::run(argc, argv); }
