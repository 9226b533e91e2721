// Products with a packed weight, whole and in pieces that helpers share.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "device/plain_source_fixture.h"
#include "drivers/host/host_device.h"
#include "drivers/host/machine/cpu_budget.h"
#include "drivers/host/machine/folder_fixture.h"
#include "drivers/host/onednn/graph_run_fixture.h"
#include "drivers/host/onednn/panels_fixture.h"
#include "drivers/host/onednn/weight_store.h"
#include "drivers/host/program.h"
#include "drivers/host/require_fixture.h"
#include "drivers/host/tuning/tuning_file.h"
#include "ir/builder.h"
#include "ir/op.h"

namespace heddle::host {
namespace {

struct TestProduct {
  int64_t m, k, n;
  bool residual = false;
};

ir::Graph graph_of_product(const TestProduct& p) {
  ir::Builder b;
  const ir::ValueId x = b.input("x", {ir::DType::kF32, {p.m, p.k}}),
                    w = b.constant(uniform(ir::DType::kF32, {p.k, p.n}, 1)),
                    bias = b.constant(uniform(ir::DType::kF32, {p.n}, 2));
  std::vector<ir::ValueId> inputs = {x, w, bias};
  if (p.residual) inputs.push_back(b.input("residual", {ir::DType::kF32, {p.m, p.n}}));
  b.output(*b.node("Linear", inputs, {{"activation", std::string("relu")}}));
  return require(b.take());
}

std::vector<ir::Tensor> inputs_of_product(const TestProduct& p) {
  std::vector<ir::Tensor> inputs = {uniform(ir::DType::kF32, {p.m, p.k}, 3)};
  if (p.residual) inputs.push_back(uniform(ir::DType::kF32, {p.m, p.n}, 4));
  return inputs;
}

struct Ran {
  ir::Tensor y;
  bool shared = false;
  std::string way = {};
};

struct RunAs {
  std::string precision = "f32";
  bool exact = false;
  HostTuning tuning = {};
};

Ran run_product(const TestProduct& p, int threads, const RunAs& as = {}) {
  const auto device = require(make_host_device({.threads = threads, .tuning = as.tuning}));
  GraphRun run = run_graph(*device, graph_of_product(p), inputs_of_product(p),
                           {.precision = as.precision, .exact = as.exact});
  Ran ran{std::move(run.outputs[0])};
  ran.way = run.host().steps().front().step->way();
  ran.shared = run.host().path().find(" pieces") != std::string::npos;
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
    const RunAs as{.exact = !has_panels()};
    const Ran whole = run_product(p, 1, as);
    CHECK_FALSE(whole.shared);
    const ir::Tensor wanted = require(ir::evaluate(graph_of_product(p), inputs_of_product(p)))[0];
    for (int64_t i = 0; i < wanted.elements(); ++i)
      REQUIRE(whole.y.get(i) == doctest::Approx(wanted.get(i)).epsilon(1e-4).scale(10));
    for (const int threads : {2, 3, 8, 16}) {
      const Ran in_pieces = run_product(p, threads, as);
      shared += in_pieces.shared ? 1 : 0;
      CHECK(std::memcmp(in_pieces.y.data(), whole.y.data(), static_cast<size_t>(whole.y.bytes())) == 0);
    }
  }
  // All but the last, or those that have rows for two threads.
  CHECK(shared >= 4 * static_cast<int>(has_panels() ? kProducts.size() - 1 : 6));
}

TEST_CASE("a product of few rows in bf16 gives the reference's values, whole and shared") {
  if (!make_engine(true).ok()) return;
  for (const TestProduct& p : kProducts) {
    const ir::Tensor wanted = require(ir::evaluate(graph_of_product(p), inputs_of_product(p)))[0];
    for (const int threads : {1, 8}) {
      const Ran ran = run_product(p, threads, {.precision = "bf16"});
      for (int64_t i = 0; i < wanted.elements(); ++i)
        REQUIRE(ran.y.get(i) == doctest::Approx(wanted.get(i)).epsilon(0.03).scale(10));
    }
  }
}

// A file of decisions as a process before this one would have left it.
void keep_decisions(const std::string& folder, Decisions decisions) {
  const TuningFile file(folder, tuning_identity(read_budget().processors));
  REQUIRE(file.merge(decisions).ok());
}

// As kept in this folder. Time stands still, so nothing is measured.
HostTuning as_kept(const TestFolder& folder) {
  static const ManualClock clock;
  return {.on = true, .folder = folder.path(), .clock = &clock};
}

TEST_CASE("a kept decision is how a product of its rung is cut, and the bits are the same") {
  if (!has_panels()) return;
  const TestFolder folder;
  keep_decisions(folder.path(), {{{64, 512, 1024, false, false, 1}, {8, 1, 1}},
                                 {{64, 512, 1024, false, false, 8}, {0, 4, 2}},
                                 {{32, 512, 1024, false, false, 8}, {0, 1, 4}}});
  const HostTuning tuning = as_kept(folder);
  struct Line {
    int64_t m;
    const char* way;
  };
  for (const Line& line :
       {Line{64, "alone whole by 8 rows, measured; by 8 threads 4 x 2 pieces, measured"},
        Line{100, "alone whole by 8 rows, measured; by 8 threads 4 x 2 pieces by 16 rows, measured"},
        Line{63, "alone whole, by rule; by 8 threads 1 x 4 pieces by 32 rows, measured"},
        Line{8, "alone whole, by rule; by 8 threads 1 x 8 pieces, by rule"}}) {
    CAPTURE(line.m);
    const TestProduct p{line.m, 512, 1024, true};
    const Ran tuned = run_product(p, 8, {.tuning = tuning}), plain = run_product(p, 8);
    CHECK(tuned.way == line.way);
    CHECK(plain.way.find("measured") == std::string::npos);
    CHECK(std::memcmp(tuned.y.data(), plain.y.data(), static_cast<size_t>(plain.y.bytes())) == 0);
  }
}

TEST_CASE("a kept decision not to share holds for its rung, and not for twice the highest") {
  const TestFolder folder;
  keep_decisions(folder.path(), {{{32, 512, 512, false, !has_panels(), 2}, {0, 1, 1}}});
  const HostTuning tuning = as_kept(folder);
  const Ran few = run_product({63, 512, 512}, 2, {.tuning = tuning});
  CHECK_FALSE(few.shared);
  CHECK(few.way.ends_with("by 2 threads whole, measured"));
  CHECK(run_product({64, 512, 512}, 2, {.tuning = tuning}).shared);
}

TEST_CASE("an exact model in bf16 takes no kept decision that would change a row's bits") {
  if (!make_engine(true).ok()) return;
  const TestFolder folder;
  keep_decisions(folder.path(), {{{64, 512, 1024, true, true, 8}, {0, 1, 8}},
                                 {{64, 512, 1024, true, true, 1}, {16, 1, 4}},
                                 {{32, 512, 1024, true, true, 8}, {0, 8, 1}}});
  const RunAs as{"bf16", true, as_kept(folder)};
  CHECK(run_product({64, 512, 1024}, 8, as).way.find("measured") == std::string::npos);
  CHECK(run_product({40, 512, 1024}, 8, as).way.ends_with("by 8 threads 8 x 1 pieces, measured"));
  const Ran all = run_product({64, 512, 1024}, 8, as), some = run_product({40, 512, 1024}, 8, as);
  // The inputs are equal as far as the shorter one goes.
  CHECK(std::memcmp(all.y.data(), some.y.data(), static_cast<size_t>(some.y.bytes())) == 0);
}

TEST_CASE("whatever is measured on this machine, values are right and kept ways are ways of the shape") {
  const TestFolder folder;
  const HostTuning tuning{.on = true, .all = true, .folder = folder.path()};
  for (const TestProduct& p : {TestProduct{16, 512, 512}, {64, 256, 512, true}, {33, 512, 130, true}}) {
    for (const bool exact : {false, true}) {
      for (const std::string precision : {"f32", "bf16"}) {
        if (precision == "bf16" && !make_engine(true).ok()) continue;
        const ir::Tensor wanted = require(ir::evaluate(graph_of_product(p), inputs_of_product(p)))[0];
        const Ran ran = run_product(p, 2, {precision, exact, tuning});
        for (int64_t i = 0; i < wanted.elements(); ++i)
          REQUIRE(ran.y.get(i) == doctest::Approx(wanted.get(i)).epsilon(0.03).scale(10));
      }
    }
  }
  const TuningFile file(folder.path(), tuning_identity(read_budget().processors));
  for (const auto& [key, way] : require(file.read())) {
    const ProductShape shape{key.rows, key.k, key.n, 1, key.rows_only, key.bf16};
    CHECK(way.parts * way.panels <= key.cores);
    CHECK(pieces_of(shape, way) >= 1);
    if (key.rows_only) CHECK(way.panels == 1);
  }
}

}  // namespace
}  // namespace heddle::host
