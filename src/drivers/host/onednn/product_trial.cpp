#include "drivers/host/onednn/product_trial.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/atomic.h"
#include "base/yield.h"

namespace heddle::host {
namespace {

constexpr int kTries = 8;  // the first wakes the team
constexpr Duration kMeeting = std::chrono::microseconds(20);

void read_all(std::span<const std::byte> bytes) {
  constexpr size_t kLine = 64;
  const volatile std::byte* const data = bytes.data();
  for (size_t i = 0; i < bytes.size(); i += kLine) static_cast<void>(data[i]);
}

// Each thread of the team reads `bytes`, at once with the others. False: some thread's core was busy with
// something else, so that another thread read for it, or waited.
bool all_read(Team& team, Team::Caller& caller, std::span<const std::byte> bytes, const Clock& clock) {
  std::vector<Duration> taken(static_cast<size_t>(team.width()));
  const TimePoint begin = clock.now();
  caller.for_each(team.width(), [&](int i) {
    const TimePoint mine = clock.now();
    read_all(bytes);
    taken[static_cast<size_t>(i)] = clock.now() - mine;
  });
  return clock.now() - begin < 2 * std::ranges::min(taken);
}

// All threads meet in a loop as soon as threads can that look for work: none had given its core away.
bool all_meet(Team& team, Team::Caller& caller, const Clock& clock) {
  Atomic<int> here{0};
  Atomic<bool> late{false};
  const TimePoint begin = clock.now();
  caller.for_each(team.width(), [&](int) {
    here.add_acq_rel(1);
    while (here.load_acquire() < team.width() && !late.load_relaxed()) {
      if (clock.now() - begin > kMeeting) late.store_relaxed(true);
      relax_processor(1);
    }
  });
  return !late.load_relaxed();
}

Result<AlignedBytes> zeroed(int64_t bytes) {
  HEDDLE_TRY_ASSIGN(AlignedBytes made, AlignedBytes::make(static_cast<uint64_t>(bytes)));
  if (made.size() > 0) std::memset(made.data(), 0, made.size());
  return made;
}

}  // namespace

Result<ProductTrial> ProductTrial::make(const Engine& engine, const ProductProblem& problem,
                                        Ref<const LinearWeight> weight, std::vector<Way> ways) {
  ProductTrial trial;
  trial.engine_ = &engine;
  trial.problem_ = problem;
  trial.weight_ = std::move(weight);
  trial.products_.resize(ways.size());
  trial.ways_ = std::move(ways);
  const auto of = [](bool narrow) -> int64_t { return narrow ? 2 : 4; };
  const int64_t results = problem.m * problem.n;
  HEDDLE_TRY_ASSIGN(trial.x_, zeroed(problem.m * problem.k * of(problem.narrow_x)));
  HEDDLE_TRY_ASSIGN(trial.y_, zeroed(results * of(problem.narrow_y)));
  if (problem.bias) {
    HEDDLE_TRY_ASSIGN(trial.bias_, zeroed(problem.n * 4));
  }
  if (problem.residual) {
    HEDDLE_TRY_ASSIGN(trial.residual_, zeroed(results * of(problem.narrow_residual)));
  }
  return trial;
}

ProductMemory ProductTrial::memory() const {
  return {x_.data(), nullptr, reinterpret_cast<const float*>(bias_.data()), residual_.data(), y_.data()};
}

Result<Ref<const Product>> ProductTrial::prepare(size_t way) {
  if (products_[way] == nullptr) {
    HEDDLE_TRY_ASSIGN(products_[way], Product::make(*engine_, problem_, weight_, ways_[way]));
    const uint64_t scratch = products_[way]->scratch_bytes() * products_[way]->pieces();
    if (scratch > scratch_.size()) {
      HEDDLE_TRY_ASSIGN(scratch_, zeroed(static_cast<int64_t>(scratch)));
    }
  }
  return products_[way]->fast() ? products_[way] : Ref<const Product>();
}

Result<Duration> ProductTrial::time_alone(size_t way, const Clock& clock) {
  HEDDLE_TRY_ASSIGN(const Ref<const Product> product, prepare(way));
  if (product == nullptr) return Duration::max();
  const TimePoint begin = clock.now();
  for (size_t i = 0; i < product->pieces(); ++i) HEDDLE_TRY(product->run_piece(memory(), i, scratch_.data()));
  return clock.now() - begin;
}

Result<Duration> ProductTrial::time_shared(size_t way, const Clock& clock, Team& team,
                                           std::span<const std::byte> others) {
  HEDDLE_TRY_ASSIGN(const Ref<const Product> product, prepare(way));
  if (product == nullptr) return Duration::max();
  Team::Caller caller(team);
  // A thread that is there at once before and after was there in between.
  for (int i = 0; i < kTries && caller.share() == team.width(); ++i) {
    if (!all_read(team, caller, others, clock) || !all_meet(team, caller, clock)) continue;
    const TimePoint begin = clock.now();
    HEDDLE_TRY(run_shared(*product, caller));
    const Duration taken = clock.now() - begin;
    if (all_meet(team, caller, clock) && caller.share() == team.width()) return taken;
  }
  return Status::unavailable("something else uses the team's cores");
}

Status ProductTrial::run_shared(const Product& product, Team::Caller& caller) const {
  Atomic<bool> failed{false};
  caller.for_each(static_cast<int>(product.pieces()), [&](int i) {
    const auto piece = static_cast<size_t>(i);
    if (!product.run_piece(memory(), piece, scratch_.data() + piece * product.scratch_bytes()).ok())
      failed.store_release(true);
  });
  return failed.load_acquire() ? Status::internal("a piece of a product failed in oneDNN") : Status();
}

}  // namespace heddle::host
