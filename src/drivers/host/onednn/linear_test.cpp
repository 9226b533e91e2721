// Products with a packed weight, whole and in pieces that helpers share.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "device/plain_source_fixture.h"
#include "drivers/host/host_device.h"
#include "drivers/host/program.h"
#include "drivers/host/require_fixture.h"
#include "ir/builder.h"
#include "ir/op.h"

namespace heddle::host {
namespace {

struct TestProduct {
  int64_t m, k, n;
  bool residual = false;
};

ir::Tensor some_floats(const ir::Extents& extents, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> value(-1, 1);
  ir::Tensor tensor = ir::Tensor::zeros(ir::DType::kF32, extents);
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, value(random));
  return tensor;
}

ir::Graph graph_of_product(const TestProduct& p) {
  ir::Builder b;
  const ir::ValueId x = b.input("x", {ir::DType::kF32, {p.m, p.k}}),
                    w = b.constant(some_floats({p.k, p.n}, 1)), bias = b.constant(some_floats({p.n}, 2));
  std::vector<ir::ValueId> inputs = {x, w, bias};
  if (p.residual) inputs.push_back(b.input("residual", {ir::DType::kF32, {p.m, p.n}}));
  b.output(*b.node("Linear", inputs, {{"activation", std::string("relu")}}));
  return require(b.take());
}

std::vector<ir::Tensor> inputs_of_product(const TestProduct& p) {
  std::vector<ir::Tensor> inputs = {some_floats({p.m, p.k}, 3)};
  if (p.residual) inputs.push_back(some_floats({p.m, p.n}, 4));
  return inputs;
}

struct Ran {
  ir::Tensor y;
  bool shared = false;
};

Ran run_product(const TestProduct& p, int threads, const std::string& precision = "f32") {
  const auto device = require(make_host_device({.threads = threads}));
  const auto module = require(device->load(graph_of_product(p), {.precision = precision},
                                           device::plain_source(*device), NoLocksHeld()));
  std::vector<ir::Tensor> inputs = inputs_of_product(p);
  std::vector<ir::Extents> extents;
  std::vector<device::View> views;
  for (ir::Tensor& input : inputs) {
    extents.push_back(input.extents());
    views.push_back(view_of(input));
  }
  const auto program = require(module->compile(extents, NoLocksHeld()));
  const Ref<device::Buffer> arena = require(device::arena_for(*device, *program));
  const auto queue = require(device->make_queue(NoLocksHeld()));
  Ran ran{ir::Tensor::zeros(ir::DType::kF32, {p.m, p.n})};
  device::CommandList list;
  list.run(program, arena, views, {view_of(ran.y)});
  REQUIRE(queue->submit(list, 1, NoLocksHeld()).ok());
  ran.shared = static_cast<const HostProgram&>(*program).path().find(" pieces") != std::string::npos;
  return ran;
}

// Few rows, which are cut by columns, and many; panels of unequal widths; a weight of fewer panels than
// threads; too little to share.
const std::vector<TestProduct> kProducts = {
    {2, 512, 1024},        {3, 640, 333},        {7, 512, 1000, true},  {16, 512, 512},
    {17, 256, 1024, true}, {33, 512, 130, true}, {64, 512, 1024, true}, {200, 256, 512, true},
    {300, 512, 100, true}, {2, 16, 48, true},
};

TEST_CASE("a product has the same bits whole and shared, whatever the number of threads") {
  int shared = 0;
  for (const TestProduct& p : kProducts) {
    CAPTURE(p.m);
    CAPTURE(p.n);
    const Ran whole = run_product(p, 1);
    CHECK_FALSE(whole.shared);
    const ir::Tensor wanted = require(ir::evaluate(graph_of_product(p), inputs_of_product(p)))[0];
    for (int64_t i = 0; i < wanted.elements(); ++i)
      REQUIRE(whole.y.get(i) == doctest::Approx(wanted.get(i)).epsilon(1e-4).scale(10));
    for (const int threads : {2, 3, 8, 16}) {
      const Ran in_pieces = run_product(p, threads);
      shared += in_pieces.shared ? 1 : 0;
      CHECK(std::memcmp(in_pieces.y.data(), whole.y.data(), static_cast<size_t>(whole.y.bytes())) == 0);
    }
  }
  CHECK(shared >= 4 * static_cast<int>(kProducts.size() - 1));  // all but the last
}

TEST_CASE("a product of few rows in bf16 gives the reference's values, whole and shared") {
  for (const TestProduct& p : kProducts) {
    const ir::Tensor wanted = require(ir::evaluate(graph_of_product(p), inputs_of_product(p)))[0];
    for (const int threads : {1, 8}) {
      const auto device = require(make_host_device({.threads = threads}));
      const std::vector<std::string>& precisions = device->traits().precisions;
      if (std::find(precisions.begin(), precisions.end(), "bf16") == precisions.end()) return;
      const Ran ran = run_product(p, threads, "bf16");
      for (int64_t i = 0; i < wanted.elements(); ++i)
        REQUIRE(ran.y.get(i) == doctest::Approx(wanted.get(i)).epsilon(0.03).scale(10));
    }
  }
}

}  // namespace
}  // namespace heddle::host
