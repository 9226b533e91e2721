#include "plan/passes/optimize.h"
#include "plan/passes/passes.h"
#include "plan/sketch_fixture.h"

namespace heddle::plan {
namespace {

using Id = Sketch::Id;

constexpr int64_t kGroups = 3;

ir::Graph grouped(const ir::Dim& rows, bool transposed, ir::DType ends = ir::DType::kI32) {
  Sketch s;
  const Id a = s.in("a", {rows, 4});
  const Id b = transposed ? s.in("b", {kGroups, 5, 4}) : s.in("b", {kGroups, 4, 5});
  s.out(s.op("GroupedMatMul", {a, b, s.in("ends", {kGroups}, ends)}, {{"trans_b", int64_t{transposed}}}));
  return s.take();
}

TEST_CASE("a product of groups is made of others for a device that has none") {
  for (const ir::DType ends : {ir::DType::kI32, ir::DType::kI64}) {
    for (const bool transposed : {false, true}) {
      for (const ir::Dim& rows : {ir::Dim(2), ir::Dim(3), ir::Dim(7), ir::Dim::symbol("rows")}) {
        const ir::Graph after = apply(spread_groups, grouped(rows, transposed, ends), {{"rows", 6}});
        CHECK(count(after, "GroupedMatMul") == 0);
        CHECK(count(after, "MatMul") == 1);
      }
    }
  }
}

TEST_CASE("who asks for no products of groups gets none") {
  Fusions fusions;
  fusions.groups = false;
  const ir::Graph graph = grouped(ir::Dim::symbol("rows"), false);
  const auto without = optimize(graph, fusions);
  REQUIRE(without.ok());
  CHECK(count(*without, "GroupedMatMul") == 0);
  const auto with = optimize(graph);
  REQUIRE(with.ok());
  CHECK(count(*with, "GroupedMatMul") == 1);
}

TEST_CASE("matrices that lie transposed are multiplied where they lie") {
  for (const bool transposed : {false, true}) {
    Sketch s;
    const Id a = s.in("a", {ir::Dim::symbol("rows"), 4});
    const Id b = transposed ? s.in("b", {kGroups, 4, 5}) : s.in("b", {kGroups, 5, 4});
    const Id ends = s.in("ends", {kGroups}, ir::DType::kI32);
    s.out(s.op("GroupedMatMul", {a, s.transpose(b, {0, 2, 1}), ends}, {{"trans_b", int64_t{transposed}}}));
    const ir::Graph after = drop_dead(apply(fuse_linear, s.take(), {{"rows", 6}}));
    CHECK(count(after, "Transpose") == 0);
    CHECK(the(after, "GroupedMatMul").attributes.i64("trans_b") == (transposed ? 0 : 1));
  }
}

}  // namespace
}  // namespace heddle::plan
