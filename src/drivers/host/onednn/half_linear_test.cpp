// Products with weights, or rows and weights, that a caller brings in sixteen bits.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/first_uses.h"
#include "drivers/host/onednn/engine.h"
#include "drivers/host/onednn/graph_run_fixture.h"
#include "ir/builder.h"
#include "ir/op.h"

namespace heddle::host {
namespace {

struct HalfProduct {
  int64_t m, k, n;
  ir::DType weight = ir::DType::kBF16;
  bool trans_w = true;
  bool bias = true;
  bool weight_read_twice = false;
  bool half_x = false;
  bool x_read_twice = false;
};

ir::DType dtype_of_x(const HalfProduct& p) { return p.half_x ? p.weight : ir::DType::kF32; }

ir::Extents weight_extents(const HalfProduct& p) {
  return p.trans_w ? ir::Extents{p.n, p.k} : ir::Extents{p.k, p.n};
}

ir::Graph graph_of_half(const HalfProduct& p) {
  ir::Builder b;
  const ir::Attributes to_f32 = {{"to", std::string("f32")}};
  std::vector<ir::ValueId> inputs = {b.input("x", {dtype_of_x(p), {p.m, p.k}})};
  if (p.half_x) inputs[0] = *b.node("Cast", {inputs[0]}, to_f32);
  const ir::Extents weight = weight_extents(p);
  inputs.push_back(*b.node("Cast", {b.input("w", {p.weight, {weight[0], weight[1]}})}, to_f32));
  if (p.bias) inputs.push_back(*b.node("Cast", {b.input("bias", {p.weight, {p.n}})}, to_f32));
  b.output(*b.node("Linear", inputs, {{"trans_w", int64_t{p.trans_w}}}));
  if (p.weight_read_twice) b.output(*b.node("Abs", {inputs[1]}));
  if (p.x_read_twice) b.output(*b.node("Abs", {inputs[0]}));
  return require(b.take());
}

std::vector<ir::Tensor> inputs_of_half(const HalfProduct& p) {
  std::vector<ir::Tensor> inputs = {uniform(dtype_of_x(p), {p.m, p.k}, 1),
                                    uniform(p.weight, weight_extents(p), 2)};
  if (p.bias) inputs.push_back(uniform(p.weight, {p.n}, 3));
  return inputs;
}

// Random numbers take long to make.
std::vector<ir::Tensor> zeros_of_half(const HalfProduct& p) {
  return {ir::Tensor::zeros(ir::DType::kF32, {p.m, p.k}), ir::Tensor::zeros(p.weight, weight_extents(p)),
          ir::Tensor::zeros(p.weight, {p.n})};
}

struct HalfRan {
  std::vector<ir::Tensor> outputs;
  std::vector<std::string> steps;
  std::string path;
  uint64_t arena_bytes;
};

HalfRan run_half(const HalfProduct& p, int threads, bool exact = false) {
  const auto device = require(make_host_device({.threads = threads}));
  GraphRun run = run_graph(*device, graph_of_half(p), inputs_of_half(p), {.exact = exact});
  HalfRan ran{std::move(run.outputs), {}, run.host().path(), run.program->arena_bytes()};
  for (const HostProgram::Named& named : run.host().steps()) ran.steps.emplace_back(named.op);
  return ran;
}

std::vector<double> numbers_of_half(const ir::Tensor& tensor) {
  std::vector<double> numbers;
  for (int64_t i = 0; i < tensor.elements(); ++i) numbers.push_back(tensor.get(i));
  return numbers;
}

// The sums of each element, in double precision.
std::vector<double> sums_of(const HalfProduct& p) {
  std::vector<std::vector<double>> inputs;
  for (const ir::Tensor& each : inputs_of_half(p)) inputs.push_back(numbers_of_half(each));
  const double *const x = inputs[0].data(), *const w = inputs[1].data();
  const int64_t column_step = p.trans_w ? p.k : 1, depth_step = p.trans_w ? 1 : p.n;
  std::vector<double> sums;
  for (int64_t row = 0; row < p.m; ++row) {
    for (int64_t column = 0; column < p.n; ++column) {
      double sum = p.bias ? inputs[2][static_cast<size_t>(column)] : 0;
      for (int64_t i = 0; i < p.k; ++i) sum += x[row * p.k + i] * w[column * column_step + i * depth_step];
      sums.push_back(sum);
    }
  }
  return sums;
}

void check_values(const HalfProduct& p, const HalfRan& ran, const std::vector<double>& sums) {
  const std::vector<double> got = numbers_of_half(ran.outputs[0]);
  REQUIRE(got.size() == sums.size());
  double worst = 0;
  for (size_t at = 0; at < sums.size(); ++at) worst = std::max(worst, std::abs(got[at] - sums[at]));
  CHECK(worst < 1e-5 * std::sqrt(static_cast<double>(p.k)));
}

}  // namespace

TEST_CASE("a weight of sixteen bits is multiplied as it lies, and its f32 form is never whole") {
  for (const ir::DType dtype : {ir::DType::kBF16, ir::DType::kF16}) {
    for (const bool trans_w : {true, false}) {
      for (const int64_t m : {1, 6, 8, 9, 16, 100}) {
        const HalfProduct p{m, 600, 1001, dtype, trans_w};
        CAPTURE(dtype);
        CAPTURE(trans_w);
        CAPTURE(m);
        const std::vector<double> sums = sums_of(p);
        for (const int threads : {1, 3}) {
          const HalfRan ran = run_half(p, threads);
          CHECK(ran.steps == std::vector<std::string>{"Cast", "Linear"});  // of the bias
          CHECK(ran.path.find("weight in ") != std::string::npos);
          CHECK(ran.arena_bytes < static_cast<uint64_t>(p.k * p.n) * sizeof(float));
          check_values(p, ran, sums);
        }
      }
    }
  }
}

TEST_CASE("a weight of sixteen bits without a bias, of few columns or of one row is right as well") {
  for (const HalfProduct& p : {HalfProduct{2, 64, 8, ir::DType::kBF16, true, false},
                               HalfProduct{2, 1, 40, ir::DType::kF16, false, false},
                               HalfProduct{7, 70'000, 17, ir::DType::kBF16, true, true}}) {
    const HalfRan ran = run_half(p, 2);
    check_values(p, ran, sums_of(p));
  }
}

TEST_CASE("a weight that something else reads, or that exact rows need, is cast") {
  HalfProduct p{3, 64, 96};
  p.weight_read_twice = true;
  const HalfRan twice = run_half(p, 1);
  CHECK(std::ranges::count(twice.steps, "Cast") == 2);
  CHECK(twice.path.find("weight in ") == std::string::npos);
  check_values(p, twice, sums_of(p));
  p.weight_read_twice = false;
  check_values(p, run_half(p, 1, true), sums_of(p));
}

TEST_CASE("rows and a weight of bf16 are multiplied as they lie, where the processor does") {
  const std::string way = Engine::multiplies_bf16() ? "bf16 weight as it lies" : "weight in ";
  for (const HalfProduct& p :
       {HalfProduct{.m = 1, .k = 600, .n = 1001}, HalfProduct{.m = 9, .k = 600, .n = 1001},
        HalfProduct{.m = 32, .k = 1000, .n = 515}, HalfProduct{.m = 70, .k = 333, .n = 160, .trans_w = false},
        HalfProduct{.m = 130, .k = 64, .n = 1001, .bias = false}, HalfProduct{.m = 3, .k = 1, .n = 1}}) {
    HalfProduct half = p;
    half.half_x = true;
    CAPTURE(p.m);
    const std::vector<double> sums = sums_of(half);
    for (const int threads : {1, 3}) {
      const HalfRan ran = run_half(half, threads);
      const size_t casts = (Engine::multiplies_bf16() ? 0 : 1) + (p.bias ? 1 : 0);
      CHECK(ran.steps.size() == casts + 1);
      CHECK_MESSAGE(ran.path.find(way) != std::string::npos, ran.path);
      check_values(half, ran, sums);
    }
  }
}

TEST_CASE("rows of f16, and rows of bf16 that something else reads or whose weight is cast, are cast") {
  struct Case {
    HalfProduct product;
    int64_t casts;
  };
  const HalfProduct bf16{.m = 3, .k = 64, .n = 96, .half_x = true};
  HalfProduct f16 = bf16, rows_read = bf16, weight_read = bf16;
  f16.weight = ir::DType::kF16;
  rows_read.x_read_twice = true;
  weight_read.weight_read_twice = true;
  for (const Case& each : {Case{f16, 2}, Case{rows_read, 2}, Case{weight_read, 3}}) {  // with the bias's
    const HalfRan ran = run_half(each.product, 1);
    CHECK(std::ranges::count(ran.steps, "Cast") == each.casts);
    check_values(each.product, ran, sums_of(each.product));
  }
}

TEST_CASE("programs that differ in how many pieces they have register the handler of exit() once") {
  const auto device = require(make_host_device({.threads = 1}));
  const auto run = [&](int64_t pieces) {
    const HalfProduct p{1, 4096, 16 * pieces, ir::DType::kBF16, false};
    const GraphRun ran = run_graph(*device, graph_of_half(p), zeros_of_half(p));
    CHECK(ran.host().path().find("weight in " + std::to_string(pieces) + " panels") != std::string::npos);
  };
  // The first uses of all are noted whatever they are: those are of one program.
  for (uint64_t i = 1; i <= FirstUses::kFirst; ++i) run(1);
  const uint64_t before = FirstUses::of_process().registered();
  for (int64_t pieces = 2; pieces <= 21; ++pieces) run(pieces);
  CHECK(FirstUses::of_process().registered() <= before + 1);  // their number may double meanwhile
}

}  // namespace heddle::host
