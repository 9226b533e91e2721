// Products of some rows with a weight that is an input, which is read as it lies.
#include "drivers/host/onednn/turned_product.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "device/plain_source_fixture.h"
#include "drivers/host/host_device.h"
#include "drivers/host/program.h"
#include "drivers/host/require_fixture.h"
#include "ir/builder.h"

namespace heddle::host {
namespace {

struct TurnedCase {
  int64_t m, k, n;
  bool bias = true;
};

ir::Tensor uniform_f32(const ir::Extents& extents, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> value(-1, 1);
  ir::Tensor tensor = ir::Tensor::zeros(ir::DType::kF32, extents);
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, value(random));
  return tensor;
}

struct TurnedRan {
  ir::Tensor y;
  std::string path;
};

// Rows are the first of one sequence, however many there are.
TurnedRan run_linear(const TurnedCase& c, int threads, bool exact = false) {
  ir::Builder b;
  std::vector<ir::ValueId> operands = {b.input("x", {ir::DType::kF32, {c.m, c.k}}),
                                       b.input("w", {ir::DType::kF32, {c.n, c.k}})};
  std::vector<ir::Tensor> inputs = {uniform_f32({c.m, c.k}, 1), uniform_f32({c.n, c.k}, 2)};
  if (c.bias) {
    operands.push_back(b.input("bias", {ir::DType::kF32, {c.n}}));
    inputs.push_back(uniform_f32({c.n}, 3));
  }
  b.output(*b.node("Linear", operands, {{"trans_w", int64_t{1}}}));
  const auto device = require(make_host_device({.threads = threads}));
  const auto module = require(
      device->load(require(b.take()), {.exact = exact}, device::plain_source(*device), NoLocksHeld()));
  std::vector<ir::Extents> extents;
  std::vector<device::View> from;
  for (ir::Tensor& input : inputs) {
    extents.push_back(input.extents());
    from.push_back(view_of(input));
  }
  const auto program = require(module->compile(extents, NoLocksHeld()));
  TurnedRan ran{ir::Tensor::zeros(ir::DType::kF32, {c.m, c.n}),
                static_cast<const HostProgram&>(*program).path()};
  const Ref<device::Buffer> arena = require(device::arena_for(*device, *program));
  const auto queue = require(device->make_queue(NoLocksHeld()));
  device::CommandList list;
  list.run(program, arena, from, std::vector<device::View>{view_of(ran.y)});
  REQUIRE(queue->submit(list, 1, NoLocksHeld()).ok());
  return ran;
}

double worst_error(const TurnedCase& c, const ir::Tensor& y) {
  const ir::Tensor x = uniform_f32({c.m, c.k}, 1), w = uniform_f32({c.n, c.k}, 2),
                   bias = uniform_f32({c.n}, 3);
  double worst = 0;
  for (int64_t row = 0; row < c.m; ++row) {
    for (int64_t column = 0; column < c.n; ++column) {
      double sum = c.bias ? bias.get(column) : 0;
      for (int64_t i = 0; i < c.k; ++i) sum += x.get(row * c.k + i) * w.get(column * c.k + i);
      worst = std::max(worst, std::abs(y.get(row * c.n + column) - sum));
    }
  }
  return worst;
}

bool has_turned(const TurnedRan& ran) { return ran.path.find("turned, brg") != std::string::npos; }

// Processors without AVX-512 have no brgemm in oneDNN.
bool can_turn() { return has_turned(run_linear({8, 64, 64}, 1)); }

TEST_CASE("some rows are multiplied with a weight that is an input as it lies, whole and in pieces") {
  for (const TurnedCase& c :
       {TurnedCase{5, 64, 48}, TurnedCase{8, 384, 384}, TurnedCase{16, 1, 8}, TurnedCase{17, 129, 301},
        TurnedCase{32, 1100, 130, false}, TurnedCase{63, 33, 1}, TurnedCase{64, 600, 1001}}) {
    for (const int threads : {1, 2, 5}) {
      CAPTURE(c.m);
      CAPTURE(c.n);
      CAPTURE(threads);
      const TurnedRan ran = run_linear(c, threads);
      CHECK(has_turned(ran) == can_turn());
      CHECK(worst_error(c, ran.y) < 1e-5 * std::sqrt(static_cast<double>(c.k)));
    }
  }
}

TEST_CASE("a row has the same bits among the rows that are turned and among more, which are not") {
  if (!can_turn()) return;
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
