// Products of a few rows with a matrix that is an input, which is read as it lies.
#include "drivers/host/onednn/few_rows.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "drivers/host/onednn/graph_run_fixture.h"
#include "ir/builder.h"

namespace heddle::host {
namespace {

struct FewRowsCase {
  ir::Extents x;
  int64_t n;
  bool few = true;
};

struct FewRowsRan {
  ir::Tensor x, w, y;
  std::string path;
};

FewRowsRan multiplied(const FewRowsCase& c, int threads, ir::DType dtype = ir::DType::kF32,
                      bool exact = false) {
  const int64_t k = c.x[c.x.rank() - 1];
  FewRowsRan ran{uniform(dtype, c.x, 1), uniform(dtype, {k, c.n}, 2), {}, {}};
  ir::Builder b;
  const ir::ValueId x = b.input("x", {dtype, ir::to_shape(c.x)}), w = b.input("w", {dtype, {k, c.n}});
  b.output(*b.node("MatMul", {x, w}));
  const auto device = require(make_host_device({.threads = threads}));
  GraphRun run = run_graph(*device, require(b.take()), {ran.x, ran.w}, {.exact = exact});
  ran.y = std::move(run.outputs[0]);
  ran.path = run.host().path();
  return ran;
}

double worst_error(const FewRowsRan& ran) {
  const int64_t k = ran.w.extents()[0], n = ran.w.extents()[1];
  double worst = 0;
  for (int64_t i = 0; i < ran.y.elements(); ++i) {
    double sum = 0;
    for (int64_t j = 0; j < k; ++j) sum += ran.x.get(i / n * k + j) * ran.w.get(j * n + i % n);
    worst = std::max(worst, std::abs(ran.y.get(i) - sum));
  }
  return worst;
}

TEST_CASE("a few rows are multiplied with a matrix that is an input as it lies, whole and in pieces") {
  for (const FewRowsCase& c :
       {FewRowsCase{{768}, 3072}, FewRowsCase{{1, 768}, 3072}, FewRowsCase{{4, 300}, 4001},
        FewRowsCase{{2, 2, 64}, 48}, FewRowsCase{{1, 1, 1, 7}, 1}, FewRowsCase{{3, 0}, 5, false},
        FewRowsCase{{0, 5}, 6, false}, FewRowsCase{{5, 64}, 48, false}, FewRowsCase{{2, 3, 64}, 48, false}}) {
    for (const int threads : {1, 2, 5}) {
      CAPTURE(c.x[0]);
      CAPTURE(c.n);
      CAPTURE(threads);
      const FewRowsRan ran = multiplied(c, threads);
      CHECK((ran.path.find("sgemm") != std::string::npos) == c.few);
      CHECK(worst_error(ran) <= 1e-5 * std::sqrt(static_cast<double>(c.x[c.x.rank() - 1])));
    }
  }
}

TEST_CASE("a few rows in f16, and exact ones, are multiplied with a matrix that is an input") {
  for (const int threads : {1, 2}) {
    CHECK(worst_error(multiplied({{2, 300}, 700}, threads, ir::DType::kF16)) < 0.02);
    CHECK(worst_error(multiplied({{2, 300}, 700}, threads, ir::DType::kF32, true)) < 1e-4);
  }
}

}  // namespace
}  // namespace heddle::host
