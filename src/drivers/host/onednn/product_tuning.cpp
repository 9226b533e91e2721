#include "drivers/host/onednn/product_tuning.h"

#include <cstring>
#include <utility>

#include "drivers/host/onednn/pieces.h"
#include "drivers/host/onednn/product_trial.h"

namespace heddle::host {
namespace {

TuningKey key_of(const ProductShape& shape, int cores) {
  return {shape.m, shape.k, shape.n, shape.bf16, shape.rows_only, cores};
}

// A trial's own shape; its rows are a rung's.
struct Rung {
  ProductProblem problem;
  ProductShape shape;
};

// None: too little work for its way to matter.
std::optional<Rung> rung_of(const Engine& engine, const ProductProblem& problem, const LinearWeight& weight,
                            int64_t rows) {
  ProductProblem at = problem;
  at.m = rows;
  if (weight.packed == nullptr || 2 * at.m * at.k * at.n < kWorthSharing) return std::nullopt;
  return Rung{at, shape_of(engine, at, weight)};
}

// More rows are more blocks: larger ones were not measured.
Result<std::optional<Way>> for_more_rows(const Rung& rung, const ProductShape& shape,
                                         const Result<std::optional<Way>>& decided) {
  if (!decided.ok() || !decided->has_value()) return decided;
  Way way = **decided;
  way.block = cut(rung.shape, way).block;
  return std::optional<Way>(without_idle_block(shape, way));
}

// The trial is made when there is something to time.
template <class Time>
TimeWay on_a_trial(const Engine& engine, const Rung& rung, const Ref<const LinearWeight>& weight,
                   const std::vector<Way>& ways, Time time) {
  auto trial = std::make_shared<std::optional<ProductTrial>>();
  return [&, trial, time](size_t way) -> Result<Duration> {
    if (!*trial) {
      Result<ProductTrial> made = ProductTrial::make(engine, rung.problem, weight, ways);
      // What a product needs no memory for is not asked of it.
      if (made.status().code() == Code::exhausted) return Status::unavailable(made.status().message());
      HEDDLE_TRY_ASSIGN(*trial, std::move(made));
    }
    return time(**trial, way);
  };
}

}  // namespace

Result<std::optional<Way>> ProductTuning::alone(const Engine& engine, const ProductProblem& problem,
                                                const Ref<const LinearWeight>& weight) {
  const std::optional<Rung> rung = rung_of(engine, problem, *weight, rung_alone(problem.m));
  if (!rung) return std::optional<Way>();
  const std::vector<Way> ways = ways_alone(rung->shape);
  const auto time = [&](ProductTrial& trial, size_t way) { return trial.time_alone(way, tuner_.clock()); };
  return for_more_rows(
      *rung, shape_of(engine, problem, *weight),
      tuner_.decide(key_of(rung->shape, 1), ways, on_a_trial(engine, *rung, weight, ways, time)));
}

Result<std::optional<Way>> ProductTuning::shared(const Engine& engine, const ProductProblem& problem,
                                                 const Ref<const LinearWeight>& weight, int width) {
  const std::optional<Rung> rung = rung_of(engine, problem, *weight, rung_shared(problem.m, width));
  if (!rung) return std::optional<Way>();
  const std::vector<Way> ways = ways_shared(rung->shape, width);
  const Ref<Team> team = team_.lock();
  std::vector<std::byte> others;
  const auto time = [&](ProductTrial& trial, size_t way) -> Result<Duration> {
    if (team == nullptr) return Status::unavailable("the device is gone");
    if (others.empty()) others.resize(kOtherBytes);
    return trial.time_shared(way, tuner_.clock(), *team, others);
  };
  return for_more_rows(
      *rung, shape_of(engine, problem, *weight),
      tuner_.decide(key_of(rung->shape, width), ways, on_a_trial(engine, *rung, weight, ways, time)));
}

}  // namespace heddle::host
