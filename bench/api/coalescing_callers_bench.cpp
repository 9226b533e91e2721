// Question  How much of what the lanes can do do plain threads get that call one row each, when their calls
//           are joined into batches?
// Peer      The same model in the same process without coalescing: as many callers as there are lanes, each
//           with batches of callers / lanes rows: what remains when waiting, waking and copying cost nothing.
// Read as   rows per second over those of the ceiling, round by round; the bar is 0.80. p99 over the time of
//           two full batches (bar 1.5); runs of one row among all (bar 2 % for 64 callers of the MLP); one
//           caller's latency with coalescing over without (bar 1.02).
// Checked   every row is compared, within 1e-4 of the output's scale, with the result of a call alone.
// Also      --model FILE --callers N [--rows R] [--coalesce off] [--precision P] [--seconds S]: one
//           measurement, as JSON on one line, for coalescing_bench.py. --trace FILE: its spans, too.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>

#include "bench/base/rounds.h"
#include "heddle/heddle.h"

namespace heddle::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Work {
  std::string path;
  std::string precision = "f32";
  bool coalesce = true;
};

Model open(const Work& work) {
  ModelOptions options;
  options.precision = work.precision;
  options.coalesce = work.coalesce;
  return Model::load(work.path, options);
}

// Inputs of `rows` rows that are different in every row; symbols other than the first axis get 32.
std::vector<Tensor> inputs_of(const Model& model, int64_t rows, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Tensor> inputs;
  for (const Port& port : model.inputs()) {
    Shape shape{rows};
    for (size_t axis = 1; axis < port.shape.size(); ++axis) {
      const bool number = port.shape[axis].find_first_not_of("0123456789") == std::string::npos;
      shape.push_back(number ? std::stoll(port.shape[axis]) : 32);
    }
    Tensor tensor = Tensor::zeros(port.dtype, shape);
    const auto count = static_cast<size_t>(tensor.elements());
    if (port.dtype == DType::f32) {
      auto* values = static_cast<float*>(tensor.mutable_data());
      std::normal_distribution<float> normal;
      std::generate_n(values, count, [&] { return normal(random); });
    } else if (port.dtype == DType::i64) {
      auto* values = static_cast<int64_t*>(tensor.mutable_data());
      const bool ids = port.name == "input_ids";
      std::generate_n(values, count, [&] { return ids ? static_cast<int64_t>(1000 + random() % 20000) : 1; });
    }
    inputs.push_back(std::move(tensor));
  }
  return inputs;
}

bool close(const Tensor& got, const Tensor& want, float tolerance) {
  const auto a = got.values<float>(), b = want.values<float>();
  float largest = 1;
  for (const float value : b) largest = std::isfinite(value) ? std::max(largest, std::abs(value)) : largest;
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](float x, float y) {
    return std::isfinite(y) && std::abs(x - y) <= tolerance * largest;
  });
}

struct Measured {
  double rows_per_s = 0;
  double p50_us = 0, p99_us = 0;
  double singles = 0;     // share of runs that had one row
  std::string histogram;  // {"rows": runs, ...}
};

// Each caller has inputs of its own and compares every answer.
Measured measure(const Model& model, int callers, int64_t rows, double seconds, float tolerance) {
  const auto n = static_cast<size_t>(callers);
  std::vector<std::vector<Tensor>> inputs;
  std::vector<Tensor> wanted;
  for (size_t i = 0; i < n; ++i) {
    inputs.push_back(inputs_of(model, rows, static_cast<unsigned>(i)));
    wanted.push_back(model(std::span<const Tensor>(inputs[i]))[0]);
  }
  std::vector<std::vector<double>> latencies(n);
  Atomic<uint64_t> wrong{0};
  const auto warm = std::chrono::duration<double>(seconds / 4),
             timed = std::chrono::duration<double>(seconds);
  std::vector<Clock::time_point> ends(n);
  std::optional<CoalescingStats> before;
  Clock::time_point begin;
  const auto start = Clock::now();
  run_together(callers, [&](int caller) {
    const auto i = static_cast<size_t>(caller);
    const auto call = [&] {
      if (!close(model(std::span<const Tensor>(inputs[i]))[0], wanted[i], tolerance)) wrong.add_relaxed(1);
    };
    while (Clock::now() < start + warm) call();
    if (i == 0) {
      before = model.coalescing_stats();
      begin = Clock::now();
    }
    const auto mine = Clock::now();
    for (auto last = mine; last < mine + timed;) {
      call();
      const auto now = Clock::now();
      latencies[i].push_back(std::chrono::duration<double, std::micro>(now - last).count());
      last = now;
    }
    ends[i] = Clock::now();
  });
  if (wrong.load_relaxed() != 0) {
    std::fprintf(stderr, "%llu answers were wrong\n", static_cast<unsigned long long>(wrong.load_relaxed()));
    std::exit(1);
  }
  std::vector<double> all;
  for (const auto& each : latencies) all.insert(all.end(), each.begin(), each.end());
  std::sort(all.begin(), all.end());
  Measured out;
  const double elapsed =
      std::chrono::duration<double>(*std::max_element(ends.begin(), ends.end()) - begin).count();
  out.rows_per_s = static_cast<double>(all.size()) * static_cast<double>(rows) / elapsed;
  out.p50_us = all[all.size() / 2];
  out.p99_us = all[all.size() * 99 / 100];
  if (const auto after = model.coalescing_stats(); after && after->batches > before->batches) {
    out.singles = static_cast<double>(after->rows[1] - before->rows[1]) /
                  static_cast<double>(after->batches - before->batches);
    for (size_t r = 0; r < after->rows.size(); ++r) {
      const uint64_t runs = after->rows[r] - before->rows[r];
      if (runs != 0) out.histogram += text(out.histogram.empty() ? "" : ", ", "\"", r, "\": ", runs);
    }
  }
  return out;
}

std::string json(const Measured& m) {
  return text("{\"rows_per_s\": ", m.rows_per_s, ", \"p50_us\": ", m.p50_us, ", \"p99_us\": ", m.p99_us,
              ", \"singles\": ", m.singles, ", \"runs\": {", m.histogram, "}}");
}

int one(const std::map<std::string, std::string>& asked) {
  const auto or_else = [&](const char* name, const char* otherwise) {
    const auto found = asked.find(name);
    return found == asked.end() ? std::string(otherwise) : found->second;
  };
  const std::string precision = or_else("--precision", "f32");
  const Model model = open({asked.at("--model"), precision, or_else("--coalesce", "on") == "on"});
  const auto trace = asked.find("--trace");
  if (trace != asked.end()) start_trace(trace->second);
  const Measured measured =
      measure(model, std::stoi(or_else("--callers", "64")), std::stoll(or_else("--rows", "1")),
              std::stod(or_else("--seconds", "1")), precision == "f32" ? 1e-4F : 5e-2F);
  if (trace != asked.end()) stop_trace();
  std::printf("%s\n", json(measured).c_str());
  return 0;
}

void show(const std::string& what, const Spread& s, const char* bar) {
  std::printf("  %-58s %7.3f (%.3f .. %.3f)  %s\n", what.c_str(), s.median, s.low, s.high, bar);
  std::fflush(stdout);
}

// One model: what callers get of the ceiling, round by round.
std::string against_ceiling(const std::string& name, const Work& work, double seconds, int rounds) {
  const Model on = open(work), off = open({work.path, work.precision, false});
  const int lanes = on.device().threads();
  const float tolerance = work.precision == "f32" ? 1e-4F : 5e-2F;
  std::string out;
  for (const int callers : {4, 16, 64}) {
    std::vector<double> ratios, tails, singles;
    double rate = 0;
    for (int round = 0; round < rounds; ++round) {
      const int64_t share = std::max(1, callers / lanes);
      const auto ceiling = [&] { return measure(off, lanes, share, seconds, tolerance); };
      const auto coalesced = [&] { return measure(on, callers, 1, seconds, tolerance); };
      Measured best, got;
      if (round % 2 == 0) best = ceiling();
      got = coalesced();
      if (round % 2 != 0) best = ceiling();
      ratios.push_back(got.rows_per_s / best.rows_per_s);
      tails.push_back(got.p99_us / (2 * best.p50_us));
      singles.push_back(100 * got.singles);
      rate = got.rows_per_s;
    }
    const std::string title = text(name, ", ", callers, " callers");
    std::printf("%s: %.0f rows/s in the last round\n", title.c_str(), rate);
    show("rows/s / ceiling", spread_of(ratios), "bar: >= 0.80");
    show("p99 / two full batches", spread_of(tails), callers == 64 ? "bar: <= 1.5" : "");
    show("runs of one row, %", spread_of(singles), callers == 64 ? "bar: <= 2" : "");
    out += text(out.empty() ? "" : ",\n", "  \"", title, "\": {\"ratio\": ", spread_of(ratios).median,
                ", \"p99\": ", spread_of(tails).median, ", \"singles\": ", spread_of(singles).median, "}");
  }
  std::vector<double> alone;
  for (int round = 0; round < rounds * 2; ++round) {
    const Measured without = measure(off, 1, 1, 0.3, tolerance), with = measure(on, 1, 1, 0.3, tolerance);
    alone.push_back(with.p50_us / without.p50_us);
  }
  show(name + ", one caller: latency on / off", spread_of(alone), "bar: <= 1.02");
  return out + text(",\n  \"", name, ", one caller\": ", spread_of(alone).median);
}

int run(int argc, char** argv) {
  std::map<std::string, std::string> asked;
  for (int i = 1; i + 1 < argc; i += 2) asked[argv[i]] = argv[i + 1];
  if (asked.contains("--model")) return one(asked);
  const std::filesystem::path models = "build/models";
  std::string out;
  struct Model {
    const char* name;
    const char* file;
    double seconds;  // of one measurement: many times what a full batch takes
  };
  for (const auto& [name, file, seconds] : {Model{"mlp", "torch/mlp.onnx", 0.4},
                                            {"conv1d", "torch/conv1d.onnx", 0.4},
                                            {"encoder", "torch/encoder.onnx", 0.8},
                                            {"minilm", "minilm.onnx", 4.0}}) {
    if (!std::filesystem::exists(models / file)) {
      std::fprintf(stderr, "%s is missing: run `make test ONLY=models` first\n", (models / file).c_str());
      return 1;
    }
    out += (out.empty() ? "" : ",\n") + against_ceiling(name, {(models / file).string()}, seconds, 5);
  }
  if (asked.contains("--json")) std::ofstream(asked["--json"]) << "{\n" << out << "\n}\n";
  return 0;
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) { return heddle::bench::run(argc, argv); }
