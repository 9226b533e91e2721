// Every operator's lowering against ir's references: compiled for the double, run on the caller's thread.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "drivers/metal/lowering/emit.h"
#include "drivers/metal/lowering/lowering.h"
#include "ir/builder.h"
#include "ir/op.h"
#include "plan/passes/passes.h"
#include "tests/close_fixture.h"
#include "tests/driver_conformance/op_cases_fixture.h"
#include "tests/metal_double/graph/lowering_bench.h"

namespace heddle::metal {
namespace {

using conformance::Case;
using conformance::In;
using ir::DType;

struct Problem {
  ir::Graph graph;
  std::vector<ir::Tensor> inputs;
  std::vector<ir::Tensor> wanted;
};

// With `planted`, a few elements of the first operand are that.
Result<Problem> problem_of(const Case& c, DType t, std::optional<double> planted = {}) {
  Problem out;
  ir::Builder builder;
  std::vector<ir::ValueId> ids;
  uint32_t seed = 0;
  for (const In& in : c.in) {
    ++seed;
    ids.push_back(ir::kNoValue);
    if (in.absent) continue;
    ir::Tensor tensor = random_tensor(in.dtype.value_or(t), in.extents, seed, in.low, in.high);
    if (in.fixed) {
      for (int64_t i = 0; i < tensor.elements(); ++i) tensor.set_i64(i, (*in.fixed)[static_cast<size_t>(i)]);
    }
    if (planted && seed == 1 && ir::is_float(tensor.dtype())) {
      for (int64_t i = 0; i < tensor.elements(); i += 5) tensor.set(i, *planted);
    }
    if (in.constant) {
      ids.back() = builder.constant(tensor);
    } else {
      ids.back() = builder.input(text("in", seed), tensor.type());
      out.inputs.push_back(tensor);
    }
  }
  HEDDLE_TRY_ASSIGN(const std::vector<ir::ValueId> results,
                    builder.nodes(c.op, ids, c.outputs, c.attributes, "node"));
  for (const ir::ValueId result : results) builder.output(result);
  HEDDLE_TRY_ASSIGN(out.graph, builder.take());
  HEDDLE_TRY_ASSIGN(out.graph,
                    plan::spread_groups(std::move(out.graph)));  // as plan::prepare() does for Metal
  HEDDLE_TRY_ASSIGN(out.wanted, ir::evaluate(out.graph, out.inputs));
  return out;
}

double tolerance_of(DType dtype) { return dtype == DType::kF16 ? 4e-3 : dtype == DType::kBF16 ? 2e-2 : 4e-5; }

std::string difference(const ir::Tensor& got, const ir::Tensor& wanted) {
  if (got.dtype() != wanted.dtype() || !(got.extents() == wanted.extents()))
    return text(got.type(), " instead of ", wanted.type());
  const double tolerance = tolerance_of(wanted.dtype());
  for (int64_t i = 0; i < wanted.elements(); ++i) {
    const double x = got.get(i), y = wanted.get(i);
    if (ir::is_float(wanted.dtype()) ? !test::is_close(x, y, {tolerance, tolerance}) : x != y)
      return text("element ", i, " is ", x, " instead of ", y);
  }
  return "";
}

TEST_CASE("metal lowering: every operator gives the reference's values in every element type Metal has") {
  const Bench bench;
  size_t checked = 0;
  for (const Case& c : conformance::all_cases()) {
    for (const DType dtype : c.dtypes) {
      if (c.op == "NonZero") continue;
      CAPTURE(std::string(c.op));
      CAPTURE(std::string(ir::name(dtype)));
      CAPTURE(checked);
      auto problem = problem_of(c, dtype);
      REQUIRE_MESSAGE(problem.ok(), to_string(problem.status()));
      const auto compiled = bench.compile(problem->graph, problem->inputs);
      ++checked;
      const bool foreign = std::ranges::any_of(
          problem->graph.values, [](const ir::Value& value) { return !has_type(value.type.dtype); });
      if (foreign && !compiled.ok()) {
        CHECK(compiled.status().code() == Code::unsupported);
        continue;
      }
      REQUIRE_MESSAGE(compiled.ok(), to_string(compiled.status()));
      const auto got = bench.run(*compiled, problem->inputs);
      for (size_t i = 0; i < problem->wanted.size(); ++i) {
        const std::string differs = difference(got[i], problem->wanted[i]);
        CHECK_MESSAGE(differs.empty(), "output ", i, ": ", differs);
      }
      for (size_t i = problem->wanted.size(); i < got.size(); ++i) CHECK(got[i].get_i64(0) == 0);
    }
  }
  CHECK(checked > 1000);
}

TEST_CASE("metal lowering: NaN goes where the reference's does") {
  const std::set<std::string_view> weighted{"Resize", "RoiAlign"};  // by a matrix: 0 times NaN is NaN
  const Bench bench;
  size_t checked = 0;
  for (const Case& c : conformance::all_cases()) {
    if (c.op == "NonZero" || weighted.contains(c.op) || std::ranges::count(c.dtypes, DType::kF32) == 0)
      continue;
    // What a mask hides weighs 0, and a place that is NaN is none.
    if ((c.op == "Attention" && c.in.size() > 3) || c.op == "OneHot") continue;
    CAPTURE(std::string(c.op));
    auto problem = problem_of(c, DType::kF32, std::numeric_limits<double>::quiet_NaN());
    REQUIRE_MESSAGE(problem.ok(), to_string(problem.status()));
    const auto compiled = bench.compile(problem->graph, problem->inputs);
    if (!compiled.ok()) continue;
    ++checked;
    const auto got = bench.run(*compiled, problem->inputs);
    for (size_t i = 0; i < problem->wanted.size(); ++i) {
      const std::string differs = difference(got[i], problem->wanted[i]);
      CHECK_MESSAGE(differs.empty(), "output ", i, ": ", differs);
    }
  }
  CHECK(checked > 300);
}

TEST_CASE(
    "metal lowering: every operator of the ir has a path, and each path that is not plain has a reason") {
  for (const ir::OpDef* op : ir::all_ops()) {
    const PathEntry* path = find_path(op->name);
    REQUIRE_MESSAGE(path != nullptr, std::string(op->name), " has no path");
    CHECK_MESSAGE((path->path == Path::graph || !path->reason.empty()), std::string(op->name),
                  " has no reason");
    CHECK((path->lower == nullptr) == (path->path == Path::refused));
  }
  std::set<std::string_view> names;
  for (const PathEntry* path : all_paths()) {
    CHECK_MESSAGE(names.insert(path->op).second, std::string(path->op), " has two paths");
    CHECK_MESSAGE(ir::find_op(path->op) != nullptr, std::string(path->op), " is no operator");
  }
}

}  // namespace
}  // namespace heddle::metal
