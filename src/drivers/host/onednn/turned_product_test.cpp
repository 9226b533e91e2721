// Products of some rows with a weight that is an input, which is read as it lies.
#include "drivers/host/onednn/turned_product.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "drivers/host/onednn/graph_run_fixture.h"
#include "drivers/host/onednn/panels_fixture.h"
#include "ir/builder.h"

namespace heddle::host {
namespace {

struct TurnedCase {
  int64_t m, k, n;
  bool bias = true;
};

struct TurnedRan {
  ir::Tensor y;
  std::string path;
};

// Rows are the first of one sequence, however many there are.
std::vector<ir::Tensor> operands_of(const TurnedCase& c) {
  std::vector<ir::Tensor> operands = {uniform(ir::DType::kF32, {c.m, c.k}, 1),
                                      uniform(ir::DType::kF32, {c.n, c.k}, 2)};
  if (c.bias) operands.push_back(uniform(ir::DType::kF32, {c.n}, 3));
  return operands;
}

TurnedRan run_linear(const TurnedCase& c, int threads, bool exact = false) {
  ir::Builder b;
  std::vector<ir::ValueId> operands = {b.input("x", {ir::DType::kF32, {c.m, c.k}}),
                                       b.input("w", {ir::DType::kF32, {c.n, c.k}})};
  if (c.bias) operands.push_back(b.input("bias", {ir::DType::kF32, {c.n}}));
  b.output(*b.node("Linear", operands, {{"trans_w", int64_t{1}}}));
  const auto device = require(make_host_device({.threads = threads}));
  GraphRun run = run_graph(*device, require(b.take()), operands_of(c), {.exact = exact});
  return {std::move(run.outputs[0]), run.host().path()};
}

double worst_error(const TurnedCase& c, const ir::Tensor& y) {
  const std::vector<ir::Tensor> operands = operands_of(c);
  const ir::Tensor &x = operands[0], &w = operands[1];
  double worst = 0;
  for (int64_t row = 0; row < c.m; ++row) {
    for (int64_t column = 0; column < c.n; ++column) {
      double sum = c.bias ? operands[2].get(column) : 0;
      for (int64_t i = 0; i < c.k; ++i) sum += x.get(row * c.k + i) * w.get(column * c.k + i);
      worst = std::max(worst, std::abs(y.get(row * c.n + column) - sum));
    }
  }
  return worst;
}

bool has_turned(const TurnedRan& ran) { return ran.path.find("turned, brg") != std::string::npos; }

TEST_CASE("some rows are multiplied with a weight that is an input as it lies, whole and in pieces") {
  for (const TurnedCase& c :
       {TurnedCase{5, 64, 48}, TurnedCase{8, 384, 384}, TurnedCase{16, 1, 8}, TurnedCase{17, 129, 301},
        TurnedCase{32, 1100, 130, false}, TurnedCase{63, 33, 1}, TurnedCase{64, 600, 1001}}) {
    for (const int threads : {1, 2, 5}) {
      CAPTURE(c.m);
      CAPTURE(c.n);
      CAPTURE(threads);
      const TurnedRan ran = run_linear(c, threads);
      CHECK(has_turned(ran) == has_panels());
      CHECK(worst_error(c, ran.y) < 1e-5 * std::sqrt(static_cast<double>(c.k)));
    }
  }
}

TEST_CASE("a row has the same bits among the rows that are turned and among more, which are not") {
  if (!has_panels()) return;
  constexpr int64_t kMore = kMostTurnedRows + 1;
  const TurnedRan more = run_linear({kMore, 200, 150}, 1);
  CHECK_FALSE(has_turned(more));
  for (const int64_t m : {5, 16, 31, 64}) {
    for (const int threads : {1, 3}) {
      const TurnedRan ran = run_linear({m, 200, 150}, threads);
      REQUIRE(has_turned(ran));
      CHECK(std::memcmp(view_of(ran.y).callers, view_of(more.y).callers,
                        static_cast<size_t>(m * 150) * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("a few rows are not turned, and exact rows are right") {
  CHECK_FALSE(has_turned(run_linear({kMostFewRows, 64, 64}, 1)));
  CHECK(worst_error({kMostFewRows, 64, 64}, run_linear({kMostFewRows, 64, 64}, 1).y) < 1e-4);
  CHECK(worst_error({9, 64, 64}, run_linear({9, 64, 64}, 1, true).y) < 1e-4);
}

TEST_CASE("a matrix is turned with its bias, whatever its extents") {
  for (const int64_t rows : {1, 3, 4, 9}) {
    for (const int64_t columns : {1, 4, 7}) {
      std::vector<float> from(static_cast<size_t>(rows * 10)), bias(static_cast<size_t>(rows)),
          to(static_cast<size_t>(columns * 11), 77);
      for (size_t i = 0; i < from.size(); ++i) from[i] = i % 3 == 0 ? -0.0f : static_cast<float>(i);
      for (size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(100 * i);
      for (const bool with_bias : {false, true}) {
        turn(from.data(), 10, rows, columns, with_bias ? bias.data() : nullptr, to.data(), 11);
        for (int64_t c = 0; c < columns; ++c) {
          for (int64_t r = 0; r < 11; ++r) {
            float wanted = 77;
            if (r < rows) wanted = from[static_cast<size_t>(r * 10 + c)];
            if (r < rows && with_bias) wanted += bias[static_cast<size_t>(r)];
            CHECK(std::bit_cast<uint32_t>(to[static_cast<size_t>(c * 11 + r)]) ==
                  std::bit_cast<uint32_t>(wanted));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle::host
