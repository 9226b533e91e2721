// Random graphs: every way that computes one gives what the references give.
//
// HEDDLE_GRAPH_SEED=17 checks that graph alone; HEDDLE_GRAPHS: how many, from the seed HEDDLE_GRAPH_FIRST on.
#include <doctest/doctest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "agreement_fixture.h"
#include "plan/passes/optimize.h"
#include "tests/driver_conformance/op_cases_fixture.h"

namespace heddle::differential {
namespace {

std::optional<uint64_t> number_in(const char* variable) {
  const char* given = std::getenv(variable);
  if (given == nullptr) return std::nullopt;
  return std::stoull(given);
}

std::string failure(uint64_t seed, const RandomGraph& drawn, const std::string& differs) {
  return text(differs, "\nthis graph alone: HEDDLE_GRAPH_SEED=", seed, "\n", described(drawn));
}

constexpr uint64_t kGraphs = 4000;  // among so many each operator is met

// What the graphs are made of, and what the planner makes of that.
using Groups = std::map<std::string_view, int64_t>;

// A fifth below what the unit test's graphs have.
const Groups kFloors = {{"element-wise", 5600}, {"movements", 3400},
                        {"reductions", 1580},   {"products", 1290},
                        {"windows", 1060},      {"chains", 385},
                        {"Attention", 12},      {"Conv with activation", 60},
                        {"Gelu", 35},           {"LayerNormalization", 28},
                        {"Linear", 365},        {"Linear with activation", 92}};

std::string_view group_of(const ir::Node& node) {
  static const std::map<std::string_view, std::set<std::string_view>> groups = {
      {"movements",
       {"Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Gather", "GatherElements", "Pad",
        "Concat", "Split", "Tile", "Trilu", "Expand"}},
      {"reductions",
       {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceProd", "ReduceSumSquare",
        "Softmax", "ArgMax", "ArgMin", "CumSum", "TopK"}},
      {"products", {"MatMul", "Gemm", "Linear"}},
      {"windows", {"Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"}}};
  if (node.op->dependence == ir::Dependence::kElementwise) return "element-wise";
  for (const auto& [group, ops] : groups) {
    if (ops.contains(node.op->name)) return group;
  }
  return "others";
}

// Forms that passes make; a case of the drivers' conformance may have one from the start.
std::string_view fused_form_of(const ir::Node& node) {
  if (node.is("Elementwise")) return "chains";
  if (node.is("Conv") && !node.attributes.str("activation").empty()) return "Conv with activation";
  if (node.is("Linear") && !node.attributes.str("activation").empty()) return "Linear with activation";
  for (const std::string_view form : {"Linear", "Gelu", "LayerNormalization", "Attention"}) {
    if (node.is(form)) return form;
  }
  return "";
}

void add_groups(const ir::Graph& drawn, Groups& groups) {
  for (const ir::Node& node : drawn.nodes) {
    ++groups[group_of(node)];
    --groups[fused_form_of(node)];
  }
  const Result<ir::Graph> planned = plan::optimize(drawn);
  if (!planned.ok()) return;  // making the model says so
  for (const ir::Node& node : planned->nodes) ++groups[fused_form_of(node)];
}

}  // namespace

TEST_CASE("a random graph gives the references' results: on the host, in a batch, on sim and in bf16") {
  Agreement agreement(true);
  const std::optional<uint64_t> only = number_in("HEDDLE_GRAPH_SEED");
  const uint64_t first = only.value_or(number_in("HEDDLE_GRAPH_FIRST").value_or(0)),
                 count = only ? 1 : number_in("HEDDLE_GRAPHS").value_or(kGraphs);
  std::set<std::string_view> used;
  Groups groups;
  uint64_t wrong = 0;
  for (uint64_t seed = first; seed < first + count && wrong < 8; ++seed) {
    SeededChoices choices(seed);
    const RandomGraph drawn = random_graph(choices);
    for (const ir::Node& node : drawn.graph.nodes) used.insert(node.op->name);
    add_groups(drawn.graph, groups);
    const std::string differs = agreement.check(drawn, choices);
    if (!differs.empty()) FAIL_CHECK(failure(seed, drawn, differs));
    wrong += differs.empty() ? 0 : 1;
    if (only) MESSAGE(described(drawn));
  }
  const Counts& counts = agreement.counts();
  MESSAGE(counts.graphs, " graphs of ", counts.nodes, " nodes and ", used.size(), " operators; ",
          counts.together, " in batches, ", counts.on_sim, " on sim, ", counts.in_bf16, " in bf16, ",
          counts.refused, " refused");
  for (const auto& [words, times] : agreement.refusals()) MESSAGE(times, " refused: ", words);
  if (only) return;
  for (const auto& [group, floor] : kFloors) {
    MESSAGE(groups[group], ": ", group);
    CAPTURE(group);
    CHECK((groups[group] >= floor || count < kGraphs));
  }
  CHECK(counts.refused * 20 < counts.graphs);
  CHECK(counts.together * 10 > counts.graphs);
  CHECK((counts.in_bf16 * 8 > counts.graphs || !agreement.has_bf16()));
  std::string missing;
  used.insert("NonZero");  // refused whatever its operand
  for (const conformance::Case& each : conformance::all_cases()) {
    if (count >= kGraphs && !used.contains(each.op) && missing.find(each.op) == std::string::npos)
      missing += text(each.op, ' ');
  }
  CHECK(missing == "");
}

}  // namespace heddle::differential
