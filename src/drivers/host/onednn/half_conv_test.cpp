// Convolutions of rows and weights that a caller brings in sixteen bits.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "drivers/host/onednn/graph_run_fixture.h"
#include "ir/builder.h"
#include "ir/op.h"

namespace heddle::host {
namespace {

struct GivenConv {
  const char* name;
  ir::Extents x, weight;
  ir::DType dtype = ir::DType::kBF16;
  int64_t group = 1;
  std::vector<int64_t> strides{}, pads{};
  bool bias = true;
};

// Of f32 where `given` is not there: the same numbers, widened by the test.
ir::Graph graph_of_conv(const GivenConv& c, std::optional<ir::DType> given) {
  ir::Builder b;
  const auto brought = [&](const char* name, const ir::Extents& extents) {
    const ir::Shape shape(extents.begin(), extents.end());
    if (!given) return b.input(name, {ir::DType::kF32, shape});
    return *b.node("Cast", {b.input(name, {*given, shape})}, {{"to", std::string("f32")}});
  };
  std::vector<ir::ValueId> inputs = {brought("x", c.x), brought("w", c.weight)};
  if (c.bias) inputs.push_back(brought("b", {c.weight[0]}));
  ir::Attributes attributes = {{"group", c.group}};
  if (!c.strides.empty()) attributes.set("strides", c.strides);
  if (!c.pads.empty()) attributes.set("pads", c.pads);
  b.output(*b.node("Conv", inputs, attributes));
  return require(b.take());
}

std::vector<ir::Tensor> inputs_of_conv(const GivenConv& c) {
  std::vector<ir::Tensor> inputs = {uniform(c.dtype, c.x, 1), uniform(c.dtype, c.weight, 2)};
  if (c.bias) inputs.push_back(uniform(c.dtype, {c.weight[0]}, 3));
  return inputs;
}

ir::Tensor widened(const ir::Tensor& tensor) {
  ir::Tensor wide = ir::Tensor::zeros(ir::DType::kF32, tensor.extents());
  for (int64_t i = 0; i < tensor.elements(); ++i) wide.set(i, tensor.get(i));
  return wide;
}

double farthest(const ir::Tensor& a, const ir::Tensor& b) {
  REQUIRE(a.extents() == b.extents());
  double worst = 0;
  for (int64_t i = 0; i < a.elements(); ++i) {
    const double off = std::abs(a.get(i) - b.get(i));
    if (!(off <= worst)) worst = off;  // a NaN stays
    if (std::isnan(worst)) break;
  }
  return worst;
}

}  // namespace

TEST_CASE("a convolution of what callers bring in sixteen bits gives the values of the same numbers in f32") {
  const GivenConv cases[] = {
      {"an image", {2, 20, 13, 9}, {48, 20, 3, 3}, ir::DType::kBF16, 1, {1, 1}, {1, 1, 1, 1}},
      {"a large weight", {1, 96, 5, 5}, {160, 96, 3, 3}, ir::DType::kBF16, 1, {}, {1, 1, 1, 1}, false},
      {"a large weight in padded blocks", {1, 100, 5, 5}, {160, 100, 3, 3}},
      {"f16", {2, 20, 13, 9}, {48, 20, 3, 3}, ir::DType::kF16, 1, {2, 2}, {1, 1, 1, 1}},
      {"a large weight in f16", {3, 96, 5, 5}, {160, 96, 3, 3}, ir::DType::kF16},
      {"one place in f16", {4, 40, 1, 1}, {30, 40, 1, 1}, ir::DType::kF16},
      {"several channels a group in f16", {2, 24, 9, 9}, {48, 12, 3, 3}, ir::DType::kF16, 2},
      {"a line", {3, 16, 33}, {24, 16, 5}, ir::DType::kBF16, 1, {2}, {2, 2}},
      {"a line as an image", {3, 16, 33, 1}, {24, 16, 5, 1}, ir::DType::kBF16, 1, {2, 1}, {2, 0, 2, 0}},
      {"a volume", {1, 8, 5, 6, 7}, {8, 8, 3, 3, 3}},
      {"one channel a group", {2, 32, 9, 9}, {32, 1, 3, 3}, ir::DType::kBF16, 32},
      {"several channels a group", {2, 24, 9, 9}, {48, 12, 3, 3}, ir::DType::kBF16, 2},
      {"one channel and one place", {4, 1, 7, 7}, {5, 1, 7, 7}},
      {"one place", {4, 40, 1, 1}, {30, 40, 1, 1}},
  };
  for (const GivenConv& c : cases) {
    std::vector<ir::Tensor> wide;
    for (const ir::Tensor& input : inputs_of_conv(c)) wide.push_back(widened(input));
    for (const int threads : {1, 3}) {
      for (const bool exact : {false, true}) {
        CAPTURE(std::string(c.name));
        CAPTURE(threads);
        CAPTURE(exact);
        const auto device = require(make_host_device({.threads = threads}));
        const GraphRun given =
            run_graph(*device, graph_of_conv(c, c.dtype), inputs_of_conv(c), {.exact = exact});
        const GraphRun in_f32 = run_graph(*device, graph_of_conv(c, {}), wide, {.exact = exact});
        const auto terms = static_cast<double>(c.weight.elements() / c.weight[0]);
        CHECK(farthest(given.outputs[0], in_f32.outputs[0]) < 1e-5 * std::sqrt(terms));
      }
    }
  }
}

TEST_CASE("a convolution of sixteen bits casts nothing but its bias") {
  for (const ir::DType dtype : {ir::DType::kBF16, ir::DType::kF16}) {
    for (const int64_t group : {1, 2}) {
      CAPTURE(std::string(ir::name(dtype)));
      CAPTURE(group);
      const GivenConv c{"an image", {2, 20, 13, 9}, {48, 20 / group, 3, 3}, dtype, group};
      const auto device = require(make_host_device({.threads = 2}));
      const GraphRun ran = run_graph(*device, graph_of_conv(c, c.dtype), inputs_of_conv(c));
      const auto is_cast = [](const HostProgram::Named& named) { return std::string(named.op) == "Cast"; };
      CHECK(std::ranges::count_if(ran.host().steps(), is_cast) == 1);
    }
  }
}

}  // namespace heddle::host
