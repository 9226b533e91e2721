// Products of groups of rows on the host: how they are shared, and rows whose bits know no neighbours.
#include <doctest/doctest.h>

#include <vector>

#include "drivers/host/onednn/graph_run_fixture.h"
#include "ir/builder.h"
#include "ir/op.h"

namespace heddle::host {
namespace {

constexpr int64_t kDepth = 160, kColumns = 700, kGroupsOfRows = 3;

struct Grouped {
  ir::DType dtype = ir::DType::kBF16;
  bool transposed = false;
};

ir::Tensor ends_of_groups(const std::vector<int64_t>& ends) {
  ir::Tensor tensor = ir::Tensor::zeros(ir::DType::kI32, {kGroupsOfRows});
  for (size_t i = 0; i < ends.size(); ++i) tensor.set_i64(static_cast<int64_t>(i), ends[i]);
  return tensor;
}

std::vector<ir::Tensor> inputs_of_groups(const Grouped& g, const ir::Tensor& a,
                                         const std::vector<int64_t>& ends) {
  const ir::Extents matrices = g.transposed ? ir::Extents{kGroupsOfRows, kColumns, kDepth}
                                            : ir::Extents{kGroupsOfRows, kDepth, kColumns};
  return {a, uniform(g.dtype, matrices, 2), ends_of_groups(ends)};
}

GraphRun run_groups(const Grouped& g, const std::vector<ir::Tensor>& inputs, int threads, bool exact) {
  ir::Builder b;
  std::vector<ir::ValueId> ids;
  for (const ir::Tensor& each : inputs)
    ids.push_back(b.input("in" + std::to_string(ids.size()), each.type()));
  b.output(*b.node("GroupedMatMul", ids, {{"trans_b", int64_t{g.transposed}}}));
  const auto device = require(make_host_device({.threads = threads}));
  return run_graph(*device, require(b.take()), inputs, {.exact = exact});
}

ir::Tensor some_rows(const ir::Tensor& a, int64_t begin, int64_t count) {
  const int64_t columns = a.extents()[1];
  ir::Tensor rows = ir::Tensor::zeros(a.dtype(), {count, columns});
  for (int64_t i = 0; i < count * columns; ++i) rows.set(i, a.get(begin * columns + i));
  return rows;
}

TEST_CASE("groups and their panels are shared by the threads") {
  const Grouped half;
  const ir::Tensor a = uniform(half.dtype, {64, kDepth}, 1);
  const GraphRun shared = run_groups(half, inputs_of_groups(half, a, {20, 30, 64}), 4, false);
  CHECK(shared.host().path().find("by 6 tasks") != std::string::npos);
  const GraphRun alone = run_groups(half, inputs_of_groups(half, a, {20, 30, 64}), 1, false);
  CHECK(alone.host().path().find("tasks") == std::string::npos);
  for (int64_t i = 0; i < 64 * kColumns; ++i) CHECK(shared.outputs[0].get(i) == alone.outputs[0].get(i));
}

TEST_CASE("an exact row of a group has the bits of that row in a group alone") {
  for (const ir::DType dtype : {ir::DType::kF32, ir::DType::kF16, ir::DType::kBF16}) {
    for (const bool transposed : {false, true}) {
      CAPTURE(static_cast<int>(dtype));
      CAPTURE(transposed);
      const Grouped g = {dtype, transposed};
      const ir::Tensor a = uniform(dtype, {40, kDepth}, 1);
      const GraphRun whole = run_groups(g, inputs_of_groups(g, a, {5, 17, 40}), 2, true);
      for (const int64_t row : {4, 16, 20, 39}) {
        const std::vector<int64_t> ends = row < 5    ? std::vector<int64_t>{1, 1, 1}
                                          : row < 17 ? std::vector<int64_t>{0, 1, 1}
                                                     : std::vector<int64_t>{0, 0, 1};
        const GraphRun alone = run_groups(g, inputs_of_groups(g, some_rows(a, row, 1), ends), 1, true);
        int64_t differ = 0;
        for (int64_t i = 0; i < kColumns; ++i)
          differ += whole.outputs[0].get(row * kColumns + i) != alone.outputs[0].get(i) ? 1 : 0;
        CHECK(differ == 0);
      }
    }
  }
}

}  // namespace
}  // namespace heddle::host
