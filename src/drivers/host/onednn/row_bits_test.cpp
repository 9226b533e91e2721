// Of exact products each row against the row alone, wherever it is and however many there are.
#include "drivers/host/onednn/row_bits.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "drivers/host/machine/aligned_bytes.h"
#include "drivers/host/onednn/omp_scope.h"
#include "drivers/host/onednn/product.h"
#include "drivers/host/onednn/random_numbers_fixture.h"
#include "drivers/host/require_fixture.h"
#include "tests/emulated_fixture.h"
#include "tests/sanitized_fixture.h"

namespace heddle::host {
namespace {

constexpr int64_t kMostTold = 130;

enum class Lies { kPacked, kPlain, kTransposed };

struct RowCase {
  int64_t k, n;
  Lies weight = Lies::kPacked;
  bool residual = false;
};

class RowsOfProducts {
 public:
  explicit RowsOfProducts(const RowCase& c)
      : w_(random_numbers(c.k * c.n, 2)),
        x_(random_numbers(kMostTold * c.k, 1)),
        bias_(random_numbers(c.n, 3)),
        residual_(random_numbers(kMostTold * c.n, 4)),
        engine_(require(make_engine(false, true))),
        store_(engine_, source_of_tests()),
        weight_(require(c.weight == Lies::kPacked
                            ? pack_linear_weight(store_, w_.data(), c.k, c.n, false)
                            : plain_linear_weight(c.k, c.n, c.weight == Lies::kTransposed))) {
    p_.k = c.k, p_.n = c.n;
    p_.bias = true;
    p_.residual = c.residual;
    p_.activation.kind = ir::ActivationKind::kGelu;
  }

  std::vector<float> rows(int64_t first, int64_t count, const Way& way = {}) const {
    const OmpScope team_of_one;
    ProductProblem p = p_;
    p.m = count;
    const auto product = require(Product::make(*engine_, p, weight_, way));
    const AlignedBytes scratch = require(AlignedBytes::make(product->scratch_bytes()));
    std::vector<float> y(static_cast<size_t>(count * p.n));
    const ProductMemory memory = {reinterpret_cast<const std::byte*>(x_.data() + first * p.k),
                                  reinterpret_cast<const std::byte*>(w_.data()), bias_.data(),
                                  reinterpret_cast<const std::byte*>(residual_.data() + first * p.n),
                                  reinterpret_cast<std::byte*>(y.data())};
    for (size_t i = 0; i < product->pieces(); ++i)
      REQUIRE(product->run_piece(memory, i, scratch.data()).ok());
    return y;
  }
  const Engine& engine() const { return *engine_; }
  RowPlan plan() const { return *require(engine_->row_bits->plan(*engine_, p_, *weight_)); }

 private:
  const OmpScope team_of_one_;  // before what oneDNN packs
  std::vector<float> w_, x_, bias_, residual_;
  ProductProblem p_;
  Ref<const Engine> engine_;
  WeightStore store_;
  Ref<const LinearWeight> weight_;
};

constexpr RowCase kRowCases[] = {
    {64, 48},    {100, 77, Lies::kPacked, true},     {256, 64},  {257, 333}, {512, 512, Lies::kPacked, true},
    {1024, 128}, {512, 96, Lies::kTransposed, true}, {1000, 40}, {768, 8},   {640, 200, Lies::kPlain},
    {33, 1},
};

TEST_CASE("exact products: each row has the bits of the row alone, at every place among any number of rows") {
  const bool slow = test::kSanitized || test::kEmulated;
  for (const RowCase& c : kRowCases) {
    if (slow && c.k * c.n > 30'000) continue;
    CAPTURE(c.k);
    CAPTURE(c.n);
    const RowsOfProducts of(c);
    std::vector<float> alone;
    for (int64_t row = 0; row < kMostTold; ++row) {
      const std::vector<float> one = of.rows(row, 1);
      alone.insert(alone.end(), one.begin(), one.end());
    }
    for (int64_t count = 2; count <= kMostTold; count += count < 26 ? 1 : slow ? 104 : 13) {
      CAPTURE(count);
      REQUIRE(
          std::ranges::equal(of.rows(0, count), std::span(alone).first(static_cast<size_t>(count * c.n))));
      for (const Way& way : {Way{7, 1, 1}, Way{0, 3, 1}, Way{16, 2, 1}})
        REQUIRE(std::ranges::equal(of.rows(0, count, way),
                                   std::span(alone).first(static_cast<size_t>(count * c.n))));
    }
  }
}

TEST_CASE("exact products of many rows are not computed row by row where larger blocks agree with the row") {
  const RowsOfProducts of({1024, 128});
  if (of.engine().row_bits == nullptr || dnnl::get_effective_cpu_isa() != dnnl::cpu_isa::avx2) return;
  const RowPlan plan = of.plan();
  CHECK(plan.rows.front() == kTriedRows);
  CHECK(plan.rows.back() == 1);
  CHECK(plan.depth <= 1024);
}

}  // namespace
}  // namespace heddle::host
