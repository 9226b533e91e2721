// Every way to cut a product, against a reference and against the whole.
#include "drivers/host/onednn/product.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/thread.h"
#include "drivers/host/machine/aligned_bytes.h"
#include "drivers/host/machine/team.h"
#include "drivers/host/onednn/omp_scope.h"
#include "drivers/host/onednn/random_numbers_fixture.h"
#include "drivers/host/require_fixture.h"

namespace heddle::host {
namespace {

struct ProductNumbers {
  std::vector<float> x, w, bias, residual, wanted;
};

ProductNumbers numbers_for(const ProductProblem& p) {
  ProductNumbers all{random_numbers(p.m * p.k, 1),
                     random_numbers(p.k * p.n, 2),
                     random_numbers(p.n, 3),
                     random_numbers(p.m * p.n, 4),
                     {}};
  for (int64_t row = 0; row < p.m; ++row) {
    std::vector<double> sums(all.bias.begin(), all.bias.end());
    for (int64_t i = 0; i < p.k; ++i) {
      const double x = all.x[static_cast<size_t>(row * p.k + i)];
      for (int64_t j = 0; j < p.n; ++j)
        sums[static_cast<size_t>(j)] += x * all.w[static_cast<size_t>(i * p.n + j)];
    }
    for (int64_t j = 0; j < p.n; ++j) {
      const double residual = p.residual ? all.residual[static_cast<size_t>(row * p.n + j)] : 0;
      all.wanted.push_back(static_cast<float>(std::max(sums[static_cast<size_t>(j)], 0.0) + residual));
    }
  }
  return all;
}

// A product over a weight of its own.
struct Ground {
  Ground(const ProductProblem& problem, bool bf16, bool exact)
      : p(problem),
        numbers(numbers_for(problem)),
        engine(require(make_engine(bf16, exact))),
        store(engine, source_of_tests()),
        weight(require(pack_linear_weight(store, numbers.w.data(), p.k, p.n, false))),
        shape(shape_of(*engine, p, *weight)) {}

  ProductMemory memory(std::vector<float>& y) const {
    return {reinterpret_cast<const std::byte*>(numbers.x.data()), nullptr, numbers.bias.data(),
            reinterpret_cast<const std::byte*>(numbers.residual.data()),
            reinterpret_cast<std::byte*>(y.data())};
  }
  Ref<const Product> product(const Way& way) const { return require(Product::make(*engine, p, weight, way)); }
  std::vector<Way> ways(int width) const {
    std::vector<Way> all = ways_alone(shape);
    for (const Way& way : ways_shared(shape, width)) all.push_back(way);
    for (const int64_t block : {1, 5, 8, 16, 48}) all.push_back({block, 1, 1});
    return all;
  }

  ProductProblem p;
  ProductNumbers numbers;
  Ref<const Engine> engine;
  WeightStore store;
  Ref<const LinearWeight> weight;
  ProductShape shape;
};

std::vector<float> run_in_turn(const Ground& ground, const Way& way) {
  const OmpScope team_of_one;
  const Ref<const Product> product = ground.product(way);
  const AlignedBytes scratch = require(AlignedBytes::make(product->scratch_bytes()));
  std::vector<float> y(ground.numbers.wanted.size(), NAN);
  for (size_t i = 0; i < product->pieces(); ++i)
    REQUIRE(product->run_piece(ground.memory(y), i, scratch.data()).ok());
  return y;
}

std::vector<float> run_on_team(const Ground& ground, const Product& product, Team& team,
                               Atomic<int>& failed) {
  std::vector<float> y(ground.numbers.wanted.size(), NAN);
  const OmpScope team_of_one;
  const auto scratch = AlignedBytes::make(product.scratch_bytes() * product.pieces());
  if (!scratch.ok()) {
    failed.add_relaxed(1);
    return y;
  }
  Team::Caller caller(team);
  caller.for_each(static_cast<int>(product.pieces()), [&](int i) {
    const auto piece = static_cast<size_t>(i);
    std::byte* const mine = scratch->data() + piece * product.scratch_bytes();
    if (!product.run_piece(ground.memory(y), piece, mine).ok()) failed.add_relaxed(1);
  });
  return y;
}

ProductProblem relu_problem(int64_t m, int64_t k, int64_t n, bool residual) {
  ProductProblem p;
  p.m = m;
  p.k = k;
  p.n = n;
  p.bias = true;
  p.residual = residual;
  p.activation.kind = ir::ActivationKind::kRelu;
  return p;
}

const std::vector<ProductProblem> kProblems = {
    relu_problem(1, 256, 512, false), relu_problem(2, 256, 512, true),   relu_problem(17, 128, 333, true),
    relu_problem(33, 640, 512, true), relu_problem(64, 512, 640, false), relu_problem(100, 96, 200, true),
};

struct Precision {
  const char* what;
  bool bf16, exact, same_bits;
  double error;
};
constexpr Precision kPrecisions[] = {{"f32", false, false, true, 1e-4},
                                     {"f32 exact", false, true, true, 1e-4},
                                     {"bf16", true, false, false, 0.2},
                                     {"bf16 exact", true, true, true, 0.2}};

// As precision.same_bits says; in f32 without `exact`, only on a processor whose products do not mix rows.
bool gives_same_bits(const Precision& precision) {
  if (precision.exact || precision.bf16) return precision.same_bits;
  return require(make_engine(false, true))->row_bits == nullptr;
}

bool has(const Precision& precision) { return make_engine(precision.bf16).ok(); }

TEST_CASE(
    "host kernels: every way of a product gives the reference's values, and exact ones the whole's bits") {
  int compared = 0;
  for (const Precision& precision : kPrecisions) {
    if (!has(precision)) continue;
    const bool same_bits = gives_same_bits(precision);
    for (const ProductProblem& p : kProblems) {
      const Ground ground(p, precision.bf16, precision.exact);
      const std::vector<float> whole = run_in_turn(ground, Way{});
      for (const Way& way : ground.ways(8)) {
        CAPTURE(precision.what);
        CAPTURE(p.m);
        CAPTURE(to_string(way));
        const std::vector<float> y = run_in_turn(ground, way);
        for (size_t i = 0; i < y.size(); ++i)
          REQUIRE(std::abs(y[i] - ground.numbers.wanted[i]) <= precision.error * (1 + std::abs(y[i])));
        if (same_bits) REQUIRE(std::memcmp(y.data(), whole.data(), y.size() * sizeof(float)) == 0);
        ++compared;
      }
    }
  }
  CHECK(compared >= 2 * 6 * 8);
}

TEST_CASE("threads that share ways of a product with helpers get the bits of one thread") {
  constexpr int kCallers = 3, kTimes = 4, kWidth = 4;
  Team team(kWidth);
  for (const Precision& precision : kPrecisions) {
    if (!has(precision)) continue;
    const Ground ground(relu_problem(33, 256, 512, true), precision.bf16, precision.exact);
    std::vector<Ref<const Product>> products;
    std::vector<std::vector<float>> wanted;
    for (const Way& way : ways_shared(ground.shape, kWidth)) {
      products.push_back(ground.product(way));
      wanted.push_back(run_in_turn(ground, way));
    }
    Atomic<int> failed{0}, wrong{0}, compared{0};
    run_together(kCallers, [&](int thread) {
      for (size_t i = 0; i < kTimes * products.size(); ++i) {
        const size_t way = (i + static_cast<size_t>(thread)) % products.size();
        const std::vector<float> y = run_on_team(ground, *products[way], team, failed);
        const bool same = std::memcmp(y.data(), wanted[way].data(), y.size() * sizeof(float)) == 0;
        wrong.add_relaxed(same ? 0 : 1);
        compared.add_relaxed(1);
      }
    });
    CAPTURE(precision.what);
    CHECK(failed.load_acquire() == 0);
    CHECK(wrong.load_acquire() == 0);
    CHECK(compared.load_acquire() == kCallers * kTimes * static_cast<int>(products.size()));
  }
}

}  // namespace
}  // namespace heddle::host
